//! Zip archives without compression, as PyTorch reads and writes them: the table at the end says where each entry is.
//! The format is PKWARE's APPNOTE 6.3, with its 64-bit records.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Range;

use super::error::TorchError;

const LOCAL: [u8; 4] = *b"PK\x03\x04";
const CENTRAL: [u8; 4] = *b"PK\x01\x02";
const END_64: [u8; 4] = *b"PK\x06\x06";
const LOCATOR_64: [u8; 4] = *b"PK\x06\x07";
const END: [u8; 4] = *b"PK\x05\x06";

/// In a field of 32 bits: the number is in the record of 64 bits.
const ELSEWHERE: u64 = 0xFFFF_FFFF;

/// What the numbers of an entry begin at a multiple of.
const ALIGNMENT: u64 = 64;

/// An entry.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    /// Where its bytes are in the file.
    pub(super) range: Range<usize>,
    /// Their CRC-32.
    pub(super) crc: u32,
}

fn fault(message: impl Into<String>) -> TorchError {
    TorchError::Archive(message.into())
}

/// The bytes of a file, read by offsets that may be anything.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn at(&self, offset: u64, count: usize) -> Option<&'a [u8]> {
        let start = usize::try_from(offset).ok()?;
        self.0.get(start..start.checked_add(count)?)
    }

    fn number<const N: usize>(&self, offset: u64) -> Option<u64> {
        Some(self.at(offset, N)?.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    fn signed(&self, offset: u64, signature: [u8; 4]) -> bool {
        self.at(offset, 4) == Some(&signature[..])
    }
}

/// The entries by name. Every offset is checked against the file's length.
pub(super) fn entries(file: &[u8]) -> Result<BTreeMap<String, Entry>, TorchError> {
    let bytes = Bytes(file);
    let cut = || fault("its table is cut short");
    let (count, mut at, end) = table(&bytes)?;
    let mut found = BTreeMap::new();
    for _ in 0..count {
        if at >= end || !bytes.signed(at, CENTRAL) {
            return Err(fault(format!("no entry of the table at offset {at}")));
        }
        let (name, entry, next) = entry(&bytes, at)?.ok_or_else(cut)?;
        if found.insert(name.clone(), entry).is_some() {
            return Err(fault(format!("entry {name:?} is there twice")));
        }
        at = next;
    }
    // Of one place several entries could be made, and each would be checked and copied.
    let mut ranges: Vec<&Range<usize>> = found.values().map(|entry| &entry.range).collect();
    ranges.sort_by_key(|range| (range.start, range.end));
    match ranges.windows(2).find(|pair| pair[1].start < pair[0].end) {
        Some(pair) => Err(fault(format!("two entries share the bytes from offset {} on", pair[1].start))),
        None => Ok(found),
    }
}

/// The number of entries, and where their table begins and ends.
fn table(bytes: &Bytes<'_>) -> Result<(u64, u64, u64), TorchError> {
    let length = bytes.0.len() as u64;
    // The last record has a comment of up to 65535 bytes.
    let mut places = (0..=65_535_u64).filter_map(|comment| Some((length.checked_sub(22 + comment)?, comment)));
    let found = places.find(|(at, comment)| bytes.signed(*at, END) && bytes.number::<2>(at + 20) == Some(*comment));
    let (at, _) = found.ok_or_else(|| fault("its end is missing"))?;
    let locator = at.checked_sub(20).filter(|locator| bytes.signed(*locator, LOCATOR_64));
    let numbers = match locator {
        Some(locator) => {
            let record = bytes.number::<8>(locator + 8);
            let record = record.filter(|record| bytes.signed(*record, END_64));
            record.and_then(|record| {
                let [count, size, start] = [32, 40, 48].map(|field| bytes.number::<8>(record.checked_add(field)?));
                Some((count?, size?, start?))
            })
        }
        None => {
            let (count, size, start) =
                (bytes.number::<2>(at + 10), bytes.number::<4>(at + 12), bytes.number::<4>(at + 16));
            count.zip(size).zip(start).map(|((count, size), start)| (count, size, start))
        }
    };
    let (count, size, start) = numbers.ok_or_else(|| fault("its end is damaged"))?;
    let end = start.checked_add(size).filter(|end| *end <= at);
    // An entry has 46 bytes at least.
    match end.filter(|_| count <= size / 46) {
        Some(end) => Ok((count, start, end)),
        None => Err(fault(format!("its table of {count} entries in {size} bytes at offset {start} does not fit"))),
    }
}

/// The entry that the table has at an offset, and the offset of the next one; `None` if it is cut short.
fn entry(bytes: &Bytes<'_>, at: u64) -> Result<Option<(String, Entry, u64)>, TorchError> {
    let read = || {
        let [flags, method, name, extra, comment] = [8, 10, 28, 30, 32].map(|field| bytes.number::<2>(at + field));
        let [crc, packed, size, start] = [16, 20, 24, 42].map(|field| bytes.number::<4>(at + field));
        Some(([flags?, method?, name?, extra?, comment?], [crc?, packed?, size?, start?]))
    };
    let Some(([flags, method, name, extra, comment], [crc, packed, size, start])) = read() else { return Ok(None) };
    let (Some(text), Some(extra_bytes)) = (bytes.at(at + 46, name as usize), bytes.at(at + 46 + name, extra as usize))
    else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(text).into_owned();
    if method != 0 || flags & 1 != 0 {
        let what = if flags & 1 != 0 { "encrypted" } else { "compressed" };
        return Err(fault(format!("entry {text:?} is {what}, expected plain bytes")));
    }
    let [size, packed, start] = wide(extra_bytes, [size, packed, start])
        .ok_or_else(|| fault(format!("entry {text:?} has no 64-bit numbers where it says so")))?;
    if size != packed {
        return Err(fault(format!("entry {text:?} has {packed} bytes for {size}")));
    }
    // The record before the bytes has a name and extra bytes of its own.
    let own =
        bytes.signed(start, LOCAL).then(|| Some((bytes.number::<2>(start + 26)?, bytes.number::<2>(start + 28)?)));
    let (own_name, own_extra) =
        own.flatten().ok_or_else(|| fault(format!("entry {text:?} is not at offset {start}")))?;
    let begin = start + 30 + own_name + own_extra;
    let end = begin.checked_add(size).filter(|end| *end <= bytes.0.len() as u64);
    let Some(end) = end.filter(|_| bytes.at(start + 30, own_name as usize) == Some(text.as_bytes())) else {
        return Err(fault(format!("entry {text:?} of {size} bytes at offset {start} does not fit")));
    };
    let entry = Entry { range: begin as usize..end as usize, crc: crc as u32 };
    Ok(Some((text, entry, at + 46 + name + extra + comment)))
}

/// Numbers of 32 bits, of which those that are elsewhere are in the extra bytes, in this order.
fn wide(extra: &[u8], numbers: [u64; 3]) -> Option<[u64; 3]> {
    if !numbers.contains(&ELSEWHERE) {
        return Some(numbers);
    }
    let bytes = Bytes(extra);
    let mut at = 0;
    while bytes.number::<2>(at)? != 1 {
        at += 4 + bytes.number::<2>(at + 2)?;
    }
    let end = at + 4 + bytes.number::<2>(at + 2)?;
    at += 4;
    let mut result = numbers;
    for number in result.iter_mut().filter(|number| **number == ELSEWHERE) {
        *number = bytes.number::<8>(at).filter(|_| at + 8 <= end)?;
        at += 8;
    }
    Some(result)
}

/// Writes an archive: each entry's name and the parts of its bytes. All sizes are written with 64 bits, so that there
/// is one way for files of any size.
pub(super) fn write(entries: &[(String, &[&[u8]])], writer: &mut dyn Write) -> io::Result<()> {
    let mut table = Vec::new();
    let mut offset = 0_u64;
    for (name, parts) in entries {
        let mut crc = crc32fast::Hasher::new();
        parts.iter().for_each(|part| crc.update(part));
        let (crc, size) = (crc.finalize(), parts.iter().map(|part| part.len() as u64).sum::<u64>());
        let length = u16::try_from(name.len()).map_err(|_| io::Error::other("the name of an entry is too long"))?;
        // The fields that both records have: version 4.5, no flags, no compression, no time, checksum, sizes.
        let mut common = Vec::new();
        common.extend([45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        common.extend(crc.to_le_bytes());
        common.extend([0xFF; 8]);
        common.extend(length.to_le_bytes());
        let mut sizes = vec![1, 0, 16, 0];
        sizes.extend(size.to_le_bytes());
        sizes.extend(size.to_le_bytes());
        // Extra bytes of PyTorch's own kind `FB` move the numbers to a multiple of 64.
        let before = offset + 30 + name.len() as u64 + sizes.len() as u64 + 4;
        let padding = (before.next_multiple_of(ALIGNMENT) - before) as u16;
        let mut record = LOCAL.to_vec();
        record.extend(&common);
        record.extend((sizes.len() as u16 + 4 + padding).to_le_bytes());
        record.extend(name.as_bytes());
        record.extend(&sizes);
        record.extend(b"FB");
        record.extend(padding.to_le_bytes());
        record.extend(vec![b'Z'; padding.into()]);
        writer.write_all(&record)?;
        parts.iter().try_for_each(|part| writer.write_all(part))?;

        let mut places = vec![1, 0, 24, 0];
        [size, size, offset].iter().for_each(|number| places.extend(number.to_le_bytes()));
        table.extend(CENTRAL);
        table.extend([45, 0]);
        table.extend(&common);
        table.extend((places.len() as u16).to_le_bytes());
        // No comment, the first disk, no attributes; the offset is in the extra bytes.
        table.extend([0; 10]);
        table.extend([0xFF; 4]);
        table.extend(name.as_bytes());
        table.extend(&places);
        offset += record.len() as u64 + size;
    }
    let (count, size) = (entries.len() as u64, table.len() as u64);
    let end = offset + size;
    table.extend(END_64);
    table.extend(44_u64.to_le_bytes());
    table.extend([45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    [count, count, size, offset].iter().for_each(|number| table.extend(number.to_le_bytes()));
    table.extend(LOCATOR_64);
    table.extend([0; 4]);
    table.extend(end.to_le_bytes());
    table.extend([1, 0, 0, 0]);
    table.extend(END);
    table.extend([0; 4]);
    table.extend([0xFF; 12]);
    table.extend([0; 2]);
    writer.write_all(&table)
}
