//! Records of measured choices: text that people can read, which says what it belongs to, and ends with a checksum of
//! the lines before it.

use std::str::Lines;

use fulgurite_kernels::folder::Folder;

/// A record: its first line, which names its form, what it belongs to, and further lines, each ended.
pub(super) fn text(form: &str, subject: &str, further: &str) -> String {
    let lines = format!("{form}\nof: {subject}\n{further}");
    let checksum = blake3::hash(lines.as_bytes()).to_hex();
    format!("{lines}checksum: {checksum}\n")
}

/// The further lines of a record of this form and subject, or what is wrong with it.
pub(super) fn further<'a>(content: &'a str, form: &str, subject: &str) -> Result<Lines<'a>, &'static str> {
    let (lines, checksum) = content.split_once("checksum: ").ok_or("it has no checksum")?;
    if checksum.trim_end() != blake3::hash(lines.as_bytes()).to_hex().as_str() {
        return Err("wrong checksum");
    }
    let mut lines = lines.lines();
    value(&mut lines, form)?;
    match value(&mut lines, "of: ")? == subject {
        true => Ok(lines),
        false => Err("it belongs to another problem"),
    }
}

/// What the next line says behind `key`.
pub(super) fn value<'a>(lines: &mut Lines<'a>, key: &str) -> Result<&'a str, &'static str> {
    lines.next().and_then(|line| line.strip_prefix(key)).ok_or("a line is missing")
}

/// What `parse` finds in a file of the folder, if there is one.
pub(super) fn read<T>(
    folder: &Folder,
    file: &str,
    parse: impl FnOnce(&str) -> Result<T, &'static str>,
) -> Result<Option<T>, String> {
    let Some(content) = folder.read(file).map_err(|error| error.to_string())? else { return Ok(None) };
    let content = String::from_utf8(content).map_err(|_| "it is no text")?;
    parse(&content).map(Some).map_err(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_damage_is_noticed() {
        let whole = text("a form 1", "a problem", "way: 3\nspeed: 4\n");
        let read = |content: &str, subject: &str| -> Result<[String; 2], &'static str> {
            let mut lines = further(content, "a form 1", subject)?;
            Ok([value(&mut lines, "way: ")?.to_owned(), value(&mut lines, "speed: ")?.to_owned()])
        };
        assert_eq!(read(&whole, "a problem"), Ok(["3".into(), "4".into()]));
        assert_eq!(read(&whole, "another"), Err("it belongs to another problem"));
        assert_eq!(further(&whole, "a form 2", "a problem").err(), Some("a line is missing"));
        for at in 0..whole.len() - 1 {
            assert!(read(&whole[..at], "a problem").is_err(), "cut off at {at}");
            let mut bytes = whole.clone().into_bytes();
            bytes[at] ^= 1;
            assert!(read(&String::from_utf8(bytes).unwrap(), "a problem").is_err(), "changed at {at}");
        }
    }
}
