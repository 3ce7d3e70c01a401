//! What the first bytes of a file say.

/// Whether a file begins as an archive does.
pub(crate) fn is_archive(start: &[u8]) -> bool {
    start.starts_with(b"PK\x03\x04")
}

/// Whether a file begins as those of PyTorch before 1.6 do: a pickle that holds a magic number.
pub(crate) fn is_old(start: &[u8]) -> bool {
    start.len() >= 4 && start[0] == 0x80 && start[1] <= 5 && start[2] == 0x8A && start[3] == 0x0A
}
