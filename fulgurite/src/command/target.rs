//! Targets that programs can be compiled for.

use fulgurite::Target;
use fulgurite::executor::executors;

/// Reads a target for the command line.
pub fn parse(text: &str) -> Result<Target, String> {
    let target = text.parse()?;
    check(&target)?;
    Ok(target)
}

/// Whether an executor runs on devices of this kind, and the architecture is the name of one.
pub fn check(target: &Target) -> Result<(), String> {
    let kind = target.kind();
    // Those that run on any device run on none alone: what they give is of another executor's making.
    let mut kinds: Vec<&str> =
        executors().iter().map(|executor| executor.device).filter(|kind| *kind != "any").collect();
    kinds.sort_unstable();
    kinds.dedup();
    if !kinds.contains(&kind) {
        return Err(format!("no executor runs on '{kind}'; there are {}", kinds.join(", ")));
    }
    match (kind, target.architecture()) {
        ("cpu", Some(architecture)) => Err(format!("'cpu' has no architectures, got '{architecture}'")),
        ("cuda", Some(architecture)) if !is_cuda_architecture(architecture) => {
            Err(format!("'{architecture}' is no architecture of 'cuda', expected sm_ and a number such as sm_90a"))
        }
        _ => Ok(()),
    }
}

/// `sm_80`, `sm_90a`, `sm_100f`: a number of two or three digits, and maybe the letter of features that later ones lack.
fn is_cuda_architecture(text: &str) -> bool {
    let Some(number) = text.strip_prefix("sm_") else { return false };
    let digits = number.strip_suffix(['a', 'f']).unwrap_or(number);
    (2..=3).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::is_cuda_architecture;

    #[test]
    fn architectures_of_cuda() {
        for good in ["sm_80", "sm_90a", "sm_100f", "sm_120"] {
            assert!(is_cuda_architecture(good), "{good}");
        }
        for bad in ["banana", "sm_", "sm_9", "sm_90b", "sm_a", "sm_90aa", "90a", "sm_1000", "compute_90"] {
            assert!(!is_cuda_architecture(bad), "{bad}");
        }
    }
}
