//! Curves of any length in a bounded number of points.

/// Parts that a long curve is divided into. Of each part its least and its greatest value are kept.
pub const PARTS: usize = 400;

/// A curve that grows. However long it is, it has at most `2 ·` [`PARTS`] ` + 2` points: its first and its last one,
/// and the least and the greatest of each part, so that no peak is lost.
#[derive(Debug, Clone, Default)]
pub struct Series {
    parts: Vec<Part>,
    /// Points in each part, but the last.
    size: usize,
    first: Option<(f64, f64)>,
    last: Option<(f64, f64)>,
}

/// Points that follow one another.
#[derive(Debug, Clone, Copy)]
struct Part {
    count: usize,
    least: (f64, f64),
    greatest: (f64, f64),
}

impl Part {
    fn of(point: (f64, f64)) -> Part {
        Part { count: 1, least: point, greatest: point }
    }

    fn joined(self, other: Part) -> Part {
        let least = if other.least.1 < self.least.1 { other.least } else { self.least };
        let greatest = if other.greatest.1 > self.greatest.1 { other.greatest } else { self.greatest };
        Part { count: self.count + other.count, least, greatest }
    }
}

impl Series {
    /// Adds a point, behind the last one. What is not finite is left out.
    pub fn push(&mut self, x: f64, y: f64) {
        if !x.is_finite() || !y.is_finite() {
            return;
        }
        self.first.get_or_insert((x, y));
        self.last = Some((x, y));
        self.size = self.size.max(1);
        match self.parts.last_mut() {
            Some(part) if part.count < self.size => *part = part.joined(Part::of((x, y))),
            _ => self.parts.push(Part::of((x, y))),
        }
        if self.parts.len() > PARTS {
            self.size *= 2;
            let join = |pair: &[Part]| pair.iter().copied().reduce(Part::joined);
            self.parts = self.parts.chunks(2).filter_map(join).collect();
        }
    }

    /// The points that are kept, in their order.
    pub fn points(&self) -> Vec<(f64, f64)> {
        let mut points: Vec<(f64, f64)> = self.first.into_iter().collect();
        for part in &self.parts {
            let ends = [part.least, part.greatest];
            points.extend(if part.least.0 <= part.greatest.0 { ends } else { [part.greatest, part.least] });
        }
        points.extend(self.last);
        points.dedup();
        points
    }

    /// The first point.
    pub fn first(&self) -> Option<(f64, f64)> {
        self.first
    }

    /// The last point.
    pub fn last(&self) -> Option<(f64, f64)> {
        self.last
    }

    /// The point with the least value.
    pub fn least(&self) -> Option<(f64, f64)> {
        self.parts.iter().map(|part| part.least).min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// The point with the greatest value.
    pub fn greatest(&self) -> Option<(f64, f64)> {
        self.parts.iter().map(|part| part.greatest).max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Whether it has no point.
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }
}

impl FromIterator<(f64, f64)> for Series {
    fn from_iter<I: IntoIterator<Item = (f64, f64)>>(points: I) -> Series {
        let mut series = Series::default();
        points.into_iter().for_each(|(x, y)| series.push(x, y));
        series
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_curves_are_whole() {
        let points: Vec<(f64, f64)> = (1..=300).map(|x| (f64::from(x), f64::from(x * 7919 % 1000))).collect();
        assert_eq!(points.iter().copied().collect::<Series>().points(), points);
        let series = Series::from_iter([(1.0, f64::NAN), (2.0, 5.0), (3.0, f64::INFINITY)]);
        assert_eq!(series.points(), [(2.0, 5.0)]);
        assert!(Series::default().is_empty() && Series::default().points().is_empty());
    }

    #[test]
    fn long_curves_are_thinned_and_keep_ends_and_extremes() {
        for length in [801, 100_000, 123_457] {
            let value = |x: i32| match x {
                50_003 => 1000.0,
                60_001 => -1000.0,
                _ => (f64::from(x) / 100.0).sin(),
            };
            let series: Series = (1..=length).map(|x| (f64::from(x), value(x))).collect();
            let points = series.points();
            assert!(points.len() <= 2 * PARTS + 2 && points.len() > PARTS / 2, "{length}: {}", points.len());
            assert!(points.windows(2).all(|pair| pair[0].0 < pair[1].0), "{length}: not in order");
            assert_eq!((points[0].0, points[points.len() - 1].0), (1.0, f64::from(length)));
            if length > 60_001 {
                assert!(points.contains(&(50_003.0, 1000.0)) && points.contains(&(60_001.0, -1000.0)));
                assert_eq!((series.least(), series.greatest()), (Some((60_001.0, -1000.0)), Some((50_003.0, 1000.0))));
            }
        }
    }
}
