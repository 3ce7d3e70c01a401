//! Names that are near a misspelt one.

/// The candidate with the least edit distance from `name` (a swap of neighbours is one edit), if it is near.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .map(|candidate| (strsim::osa_distance(name, candidate), candidate))
        .min()
        .filter(|(distance, _)| *distance <= 1 + name.len() / 3)
        .map(|(_, candidate)| candidate)
}

/// `, did you mean 'x'?` for the candidate that is near `name`, or nothing.
pub fn did_you_mean<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> String {
    nearest(name, candidates).map(|near| format!(", did you mean '{near}'?")).unwrap_or_default()
}

/// As [`did_you_mean`], for a candidate that is one letter away from `name`.
pub fn slip_of<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> String {
    did_you_mean(name, candidates.filter(|candidate| strsim::osa_distance(name, candidate) == 1))
}

#[cfg(test)]
mod tests {
    use super::{did_you_mean, nearest, slip_of};

    #[test]
    fn two_letters_in_the_other_order_are_one_mistake() {
        assert_eq!(nearest("gleu", ["ge", "gelu", "glu2"].into_iter()), Some("gelu"));
        assert_eq!(did_you_mean("hots", ["host", "cpu"].into_iter()), ", did you mean 'host'?");
        assert_eq!(did_you_mean("zzz", ["host", "cpu"].into_iter()), "");
        assert_eq!(slip_of("flahs", ["fast", "flash"].into_iter()), ", did you mean 'flash'?");
        assert_eq!(slip_of("fast", ["flash", "cpu"].into_iter()), "");
    }
}
