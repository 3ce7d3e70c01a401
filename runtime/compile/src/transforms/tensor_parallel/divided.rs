//! How a tensor is divided among ranks along one of its dimensions, also after its dimensions are split, merged or
//! selected.

/// A tensor of which each rank along an axis has equal parts of a dimension. The dimension is made of sections, one
/// after another, and each rank has its part of every one of them: of the queries, the keys and the values of a layer
/// that computes all three. Most dimensions are one section.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Divided {
    /// The dimension.
    pub dim: usize,
    /// The lengths of its sections.
    pub sections: Vec<usize>,
}

impl Divided {
    /// Dimension `dim` of extent `extent`, as one section.
    pub fn whole_extent(dim: usize, extent: usize) -> Divided {
        Divided { dim, sections: vec![extent] }
    }

    /// The extent of the dimension of the whole tensor.
    pub fn extent(&self) -> usize {
        self.sections.iter().sum()
    }

    /// The same sections, in another dimension.
    pub fn at(&self, dim: usize) -> Divided {
        Divided { dim, ..self.clone() }
    }

    /// The shape of a rank's part of a tensor of this shape.
    pub fn part(&self, shape: &[usize], ranks: usize) -> Vec<usize> {
        let mut part = shape.to_vec();
        part[self.dim] = self.extent() / ranks;
        part
    }

    /// Whether each rank can have an equal part of each section of a tensor of this shape.
    pub fn fits(&self, shape: &[usize], ranks: usize) -> bool {
        shape.get(self.dim) == Some(&self.extent())
            && self.extent() > 0
            && self.sections.iter().all(|section| section.is_multiple_of(ranks))
    }

    /// The division once the tensor of shape `from` has shape `to`, with its elements in the same order; none if a
    /// rank's parts are no parts along one dimension of the other shape.
    pub(super) fn reshaped(&self, from: &[usize], to: &[usize], ranks: usize) -> Option<Divided> {
        let outer: usize = from[..self.dim].iter().product();
        let inner: usize = from[self.dim + 1..].iter().product();
        let found = (0..to.len()).find_map(|dim| {
            let own: usize = to[dim + 1..].iter().product();
            let same = to[..dim].iter().product::<usize>() == outer && own > 0 && to[dim] > 1;
            let whole = |section: &usize| (section * inner).is_multiple_of(own * ranks);
            (same && self.sections.iter().all(whole))
                .then(|| Divided { dim, sections: self.sections.iter().map(|section| section * inner / own).collect() })
        });
        // Equal sections become a dimension of their own.
        found.or_else(|| {
            let (first, count) = (*self.sections.first()?, self.sections.len());
            if count < 2 || self.sections.iter().any(|section| *section != first) {
                return None;
            }
            let apart = [&from[..self.dim], &[count, first], &from[self.dim + 1..]].concat();
            Divided::whole_extent(self.dim + 1, first).reshaped(&apart, to, ranks)
        })
    }

    /// The division of the elements from `start` to `end` along the dimension, and where they are in a part; none
    /// unless they are whole sections, one after another.
    pub(super) fn selected(&self, start: usize, end: usize, ranks: usize) -> Option<(Divided, [usize; 2])> {
        let (mut at, mut sections) = (0, Vec::new());
        for section in &self.sections {
            if at >= start && at + section <= end {
                sections.push(*section);
            }
            at += section;
        }
        let first: usize =
            self.ends().position(|edge| edge == start).map(|count| self.sections[..count].iter().sum())?;
        let fits = first == start && sections.iter().sum::<usize>() == end.checked_sub(start)? && end > start;
        fits.then(|| (Divided { dim: self.dim, sections }, [start / ranks, end / ranks]))
    }

    /// Where sections begin and end.
    fn ends(&self) -> impl Iterator<Item = usize> {
        let mut at = 0;
        std::iter::once(0).chain(self.sections.iter().map(move |section| {
            at += section;
            at
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divided(dim: usize, sections: &[usize]) -> Divided {
        Divided { dim, sections: sections.to_vec() }
    }

    #[test]
    fn dimensions_split_and_merge() {
        let channels = Divided::whole_extent(2, 12);
        assert_eq!(channels.reshaped(&[2, 3, 12], &[2, 3, 4, 3], 2), Some(divided(2, &[4])));
        assert_eq!(channels.reshaped(&[2, 3, 12], &[6, 12], 2), Some(divided(1, &[12])));
        // Three heads of four are not divided among two.
        assert_eq!(channels.reshaped(&[2, 3, 12], &[2, 3, 3, 4], 2), None);
        assert_eq!(divided(2, &[4]).reshaped(&[2, 3, 4, 3], &[2, 3, 12], 4), Some(divided(2, &[12])));
        // What is divided within what comes before it is divided along no dimension of the other shape.
        assert_eq!(divided(1, &[4]).reshaped(&[2, 4, 3], &[8, 3], 2), None);
        assert_eq!(divided(1, &[4]).reshaped(&[1, 4, 3], &[4, 3], 2), Some(divided(0, &[4])));
        assert_eq!(divided(1, &[2]).reshaped(&[3, 2, 0], &[6, 0], 2), None);
    }

    #[test]
    fn sections_follow() {
        let packed = divided(1, &[8, 4, 4]);
        assert_eq!(packed.reshaped(&[5, 16], &[1, 5, 16], 2), Some(divided(2, &[8, 4, 4])));
        assert_eq!(packed.reshaped(&[5, 16], &[5, 8, 2], 2), Some(divided(1, &[4, 2, 2])));
        assert_eq!(divided(1, &[4, 4, 4]).reshaped(&[5, 12], &[5, 3, 2, 2], 2), Some(divided(2, &[2])));
        assert_eq!(packed.selected(8, 12, 2), Some((divided(1, &[4]), [4, 6])));
        assert_eq!(packed.selected(0, 12, 4), Some((divided(1, &[8, 4]), [0, 3])));
        assert_eq!(packed.selected(0, 6, 2), None);
        assert_eq!(packed.selected(2, 12, 2), None);
        assert_eq!(packed.selected(8, 8, 2), None);
    }

    #[test]
    fn parts_are_equal() {
        assert!(divided(0, &[4, 2]).fits(&[6, 1], 2));
        assert!(!divided(0, &[3, 3]).fits(&[6, 1], 2) && !divided(0, &[4]).fits(&[6], 2));
        assert!(!divided(1, &[4]).fits(&[4], 2) && !divided(0, &[0]).fits(&[0], 2));
        assert_eq!(divided(1, &[4, 8]).part(&[3, 12], 4), [3, 3]);
    }
}
