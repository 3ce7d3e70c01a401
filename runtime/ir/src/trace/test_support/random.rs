//! What random traces are made of.

/// splitmix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}

pub(super) const STRINGS: [&str; 27] = [
    "x",
    "h.0.attn.softmax",
    "t0.2.1",
    "0.weight",
    "0",
    "1e5",
    "1.5",
    "nan",
    "inf",
    "none",
    "by",
    "yield",
    "del",
    "in",
    "at",
    "output",
    "region",
    "checkpoint",
    "a b",
    "größe",
    "\"",
    "back\\slash\n\t\r\0",
    "\u{202e}\u{1f600}",
    "layer-1",
    "a::b",
    ".",
    "infinity",
];
pub(super) const FLOATS: [u64; 12] = [
    0x0000_0000_0000_0000,
    0x8000_0000_0000_0000,
    0x7ff0_0000_0000_0000,
    0xfff0_0000_0000_0000,
    0x7ff8_0000_0000_0000,
    0xfff8_0000_0000_0000,
    0x7ff0_0000_0000_0001,
    0x7fef_ffff_ffff_ffff,
    0x0000_0000_0000_0001,
    0x3ff0_0000_0000_0000,
    0x3ee4_f8b5_88e3_68f1,
    0x4341_c379_37e0_8000,
];
