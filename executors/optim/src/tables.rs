//! Tables of tensors that come with a launch's arguments.

use fulgurite_runtime::rules::Parameter;

/// Elements of a block; the kernels know it too.
const CHUNK: usize = 8192;

/// The most tensors of a launch. With what comes with each of them the arguments stay far below the 32764 bytes that a
/// launch has room for.
pub const MOST_TENSORS: usize = 256;

/// The kernels' `Table` for tensors of these lengths, none of them zero, and the blocks that they take together.
pub fn table(lengths: &[usize]) -> (Parameter, u32) {
    let (mut long, mut firsts, mut blocks) = (Vec::new(), Vec::new(), 0u32);
    for length in lengths {
        long.extend((*length as u64).to_le_bytes());
        firsts.extend(blocks.to_le_bytes());
        blocks += length.div_ceil(CHUNK) as u32;
    }
    long.extend(firsts);
    // A structure is a multiple of its alignment.
    long.resize(long.len().next_multiple_of(align_of::<u64>()), 0);
    (Parameter::Value(long.into()), blocks)
}

/// Numbers of one type beside each other.
pub fn numbers<const N: usize>(values: impl IntoIterator<Item = [u8; N]>) -> Parameter {
    Parameter::Value(values.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_laid_out_as_the_kernels_see_it() {
        let (Parameter::Value(bytes), blocks) = table(&[1, 8193, 5]) else { panic!("a table is a value") };
        assert_eq!((bytes.len(), blocks), (3 * 8 + 3 * 4 + 4, 4));
        let firsts: Vec<u32> = bytes[24..36].chunks(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect();
        assert_eq!(firsts, [0, 1, 3]);
    }
}
