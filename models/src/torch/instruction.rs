//! The instructions of a pickle, by the names that Python's `pickletools` gives them.

macro_rules! instructions {
    ($($name:ident = $byte:literal),* $(,)?) => {
        $(pub(super) const $name: u8 = $byte;)*
        /// Those that are run.
        #[cfg(test)]
        pub(super) const RUN: &[u8] = &[$($name),*];
    };
}

instructions! {
    PROTO = 0x80,
    FRAME = 0x95,
    STOP = b'.',
    MARK = b'(',
    POP = b'0',
    NONE = b'N',
    NEWTRUE = 0x88,
    NEWFALSE = 0x89,
    BINFLOAT = b'G',
    BININT = b'J',
    BININT1 = b'K',
    BININT2 = b'M',
    LONG1 = 0x8A,
    BINUNICODE = b'X',
    SHORT_BINUNICODE = 0x8C,
    EMPTY_DICT = b'}',
    EMPTY_LIST = b']',
    EMPTY_TUPLE = b')',
    TUPLE1 = 0x85,
    TUPLE2 = 0x86,
    TUPLE3 = 0x87,
    TUPLE = b't',
    APPEND = b'a',
    APPENDS = b'e',
    SETITEM = b's',
    SETITEMS = b'u',
    BINPUT = b'q',
    LONG_BINPUT = b'r',
    MEMOIZE = 0x94,
    BINGET = b'h',
    LONG_BINGET = b'j',
    GLOBAL = b'c',
    STACK_GLOBAL = 0x93,
    BINPERSID = b'Q',
    REDUCE = b'R',
    BUILD = b'b',
}

/// The other instructions of protocols 0 to 5, none of which `torch.save` writes for tensors.
pub(super) const OTHERS: [(u8, &str); 32] = [
    (b'I', "INT"),
    (b'L', "LONG"),
    (b'F', "FLOAT"),
    (b'S', "STRING"),
    (b'T', "BINSTRING"),
    (b'U', "SHORT_BINSTRING"),
    (b'V', "UNICODE"),
    (b'1', "POP_MARK"),
    (b'2', "DUP"),
    (b'B', "BINBYTES"),
    (b'C', "SHORT_BINBYTES"),
    (b'P', "PERSID"),
    (b'd', "DICT"),
    (b'g', "GET"),
    (b'i', "INST"),
    (b'l', "LIST"),
    (b'o', "OBJ"),
    (b'p', "PUT"),
    (0x81, "NEWOBJ"),
    (0x82, "EXT1"),
    (0x83, "EXT2"),
    (0x84, "EXT4"),
    (0x8B, "LONG4"),
    (0x8D, "BINUNICODE8"),
    (0x8E, "BINBYTES8"),
    (0x8F, "EMPTY_SET"),
    (0x90, "ADDITEMS"),
    (0x91, "FROZENSET"),
    (0x92, "NEWOBJ_EX"),
    (0x96, "BYTEARRAY8"),
    (0x97, "NEXT_BUFFER"),
    (0x98, "READONLY_BUFFER"),
];

/// The refusal of an instruction that is not run.
pub(super) fn refusal(byte: u8) -> String {
    match OTHERS.iter().find(|(other, _)| *other == byte) {
        Some((_, name)) => format!("instruction {name} ({byte:#04x}) is not used by files of tensors"),
        None => format!("{byte:#04x} is not an instruction of a pickle"),
    }
}
