//! Extents at which kernels change their way: the ends of tiles, of vectors, of what one thread takes.

use crate::samples::Random;

/// Extents of everyday: none, one, odd ones, those of a vector and its neighbours.
const SMALL: [usize; 18] = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100];
/// What tiles, blocks and threads are multiples of: each is tried with its neighbours.
const EDGES: [usize; 12] = [128, 256, 512, 1024, 2048, 3072, 4096, 5120, 8192, 12288, 16384, 65536];

/// An extent of at most `most`: a small one, or one beside an edge.
pub(super) fn extent(random: &mut Random, most: usize) -> usize {
    let most = most.max(1);
    if random.next().is_multiple_of(64) {
        return 0;
    }
    if random.next().is_multiple_of(2) {
        let edges = EDGES.iter().filter(|edge| **edge < most).count();
        if edges > 0 {
            let edge = EDGES[(random.next() % edges as u64) as usize];
            return (edge + (random.next() % 3) as usize - 1).min(most);
        }
    }
    let small = SMALL.iter().filter(|small| **small <= most).count();
    SMALL[(random.next() % small as u64) as usize]
}

/// A shape of `rank` dimensions with at most `most` elements, its larger extents first, last, or anywhere.
pub(super) fn shape(random: &mut Random, rank: usize, most: usize) -> Vec<usize> {
    let mut left = most.max(1);
    let mut shape: Vec<usize> = (0..rank)
        .map(|_| {
            let extent = extent(random, left);
            left = (left / extent.max(1)).max(1);
            extent
        })
        .collect();
    if rank > 1 {
        let turn = (random.next() % rank as u64) as usize;
        shape.rotate_left(turn);
    }
    shape
}

/// Extents that a failing program is tried with in place of `extent`, the smallest first.
pub(super) fn smaller(extent: usize) -> Vec<usize> {
    let mut found = vec![1, 2, 3, 5, 9, 17, 33, 65, extent / 4, extent / 2];
    found.extend(EDGES.iter().flat_map(|edge| [edge - 1, *edge, edge + 1]));
    found.push(extent.saturating_sub(1));
    found.retain(|other| (1..extent).contains(other));
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_stay_within_their_elements_and_meet_the_edges() {
        let mut random = Random::new(5);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..4000 {
            let shape = shape(&mut random, 3, 20_000);
            assert!(shape.iter().product::<usize>() <= 20_000, "{shape:?}");
            seen.extend(shape);
        }
        for edge in [0, 1, 1023, 1024, 1025, 2047, 2048, 2049, 4095, 4096, 4097, 12289] {
            assert!(seen.contains(&edge), "{edge} is never drawn");
        }
    }

    #[test]
    fn smaller_extents_are_smaller() {
        assert_eq!(smaller(4), [1, 2, 3]);
        assert!(smaller(4097).contains(&4096) && smaller(4097).iter().all(|extent| *extent < 4097));
        assert!(smaller(1).is_empty());
    }
}
