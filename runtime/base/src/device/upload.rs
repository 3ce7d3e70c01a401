//! Large host memory on its way to a device: through page-locked pieces, one of which crosses while the next is filled
//! by all cores. A driver that is given ordinary memory does the same on one core.

use rayon::prelude::*;

use super::block::Block;
use super::context::DeviceContext;
use super::error::DeviceError;
use super::host_time::waiting;
use super::stream::{DeviceEvent, DeviceStream, HostMemory};

/// What is smaller crosses faster than other cores wake up.
const LEAST_BYTES: usize = 4 << 20;
/// Size of a piece: of several a block, so that little of it crosses beside nothing.
const PIECE_BYTES: usize = 4 << 20;
const PIECES: usize = 3;
/// What one core copies at a time.
const SHARE_BYTES: usize = 256 << 10;

/// A piece, and a mark behind the copy that reads it.
#[derive(Debug)]
struct Piece {
    memory: Box<dyn HostMemory>,
    copied: Box<dyn DeviceEvent>,
}

/// The pieces that a device's large copies go through.
#[derive(Debug)]
pub(super) struct Staging {
    pieces: [Piece; PIECES],
    /// The one that is filled next.
    next: usize,
}

/// The pieces of a device, which one copy has at a time. They are lent, not locked: the cores that fill them may take
/// up other work meanwhile, which copies too.
#[derive(Debug, Default)]
pub(super) enum Lent {
    /// Nobody has asked for them yet.
    #[default]
    NotMade,
    There(Box<Staging>),
    /// Another thread has them, or they could not be made, or a copy through them failed.
    Away,
}

impl Lent {
    /// The pieces, if nobody has them.
    pub(super) fn lend(&mut self, context: &dyn DeviceContext) -> Option<Box<Staging>> {
        match std::mem::replace(self, Lent::Away) {
            Lent::There(staging) => Some(staging),
            Lent::Away => None,
            Lent::NotMade => {
                let made = Staging::new(context);
                // Memory that cannot be locked is no reason to fail.
                made.inspect_err(|error| tracing::debug!(%error, "no page-locked memory")).ok().map(Box::new)
            }
        }
    }

    /// Takes them back after a copy that went well.
    pub(super) fn give_back(&mut self, staging: Box<Staging>) {
        *self = Lent::There(staging);
    }
}

impl Staging {
    /// Whether so many bytes go through pieces.
    pub(super) fn pays(bytes: usize) -> bool {
        bytes >= LEAST_BYTES
    }

    /// The pieces.
    ///
    /// # Errors
    /// The driver's, for example that the process may not lock as many pages.
    fn new(context: &dyn DeviceContext) -> Result<Staging, DeviceError> {
        let piece = || {
            let memory = context.host_memory(PIECE_BYTES)?;
            Ok::<Piece, DeviceError>(Piece { memory, copied: context.event(false)? })
        };
        Ok(Staging { pieces: [piece()?, piece()?, piece()?], next: 0 })
    }

    /// Writes `from` to the beginning of a block, behind what is enqueued on `stream`, and waits for it, also for the
    /// pieces before one that fails. After an error the pieces are not to be used again.
    pub(super) fn write(&mut self, stream: &dyn DeviceStream, to: &mut Block, from: &[u8]) -> Result<(), DeviceError> {
        let enqueued = from
            .chunks(PIECE_BYTES)
            .enumerate()
            .try_for_each(|(number, part)| self.enqueue(stream, to, number * PIECE_BYTES, part));
        let waited = waiting(|| stream.synchronize());
        enqueued.and(waited)
    }

    fn enqueue(
        &mut self,
        stream: &dyn DeviceStream,
        to: &mut Block,
        offset: usize,
        part: &[u8],
    ) -> Result<(), DeviceError> {
        let Piece { memory, copied } = &self.pieces[self.next];
        self.next = (self.next + 1) % self.pieces.len();
        waiting(|| copied.synchronize())?;
        // SAFETY: the piece has as many initialized bytes, nobody else has it, since `self` is borrowed mutably, and
        // the copy that read it last has ended.
        let piece = unsafe { std::slice::from_raw_parts_mut(memory.pointer(), part.len()) };
        piece.par_chunks_mut(SHARE_BYTES).zip(part.par_chunks(SHARE_BYTES)).for_each(|(to, from)| {
            to.copy_from_slice(from);
        });
        let range = to.range(offset, part.len())?;
        // SAFETY: the range is in the block, which is not freed before the copies are waited for; the piece is
        // written again only after the mark behind its copy, and is not freed before the copies are waited for either.
        unsafe { stream.copy_in(to.address().offset(range.start), piece) }?;
        stream.record(&**copied)
    }
}
