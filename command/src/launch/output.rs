//! What ranks write: line by line, with the number of the rank.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::thread::{self, JoinHandle};

/// The longest line that is shown as one.
const LONGEST: u64 = 1 << 16;

/// Shows what `from` has until its end, each line with the number of `rank` before it.
pub fn show<W: Write>(
    rank: usize,
    from: impl Read + Send + 'static,
    to: impl Fn() -> W + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let copy = move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        loop {
            line.clear();
            match from.by_ref().take(LONGEST).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            let text = [format!("[{rank}] ").as_bytes(), line.strip_suffix(b"\n").unwrap_or(&line), b"\n"].concat();
            // Nobody may read it any more, and the rank is to go on all the same.
            let _ = to().write_all(&text);
        }
    };
    thread::Builder::new().name(format!("output of rank {rank}")).spawn(copy)
}
