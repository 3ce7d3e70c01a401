//! The names of PyTorch's functions, which `torch = "..."` may say. `torch_names.py` writes the list.

use crate::errors::did_you_mean;

/// The public functions of PyTorch 2.15 by their names below `torch.`, sorted.
const NAMES: &str = include_str!("torch_names.txt");

/// The problem with `name`, if PyTorch has no such function. Operators of other libraries, such as
/// `ops.torchvision.nms`, are not known here and are accepted.
pub fn problem(name: &str) -> Option<String> {
    let other_library = name.strip_prefix("ops.").is_some_and(|rest| !rest.starts_with("prims."));
    if other_library || NAMES.lines().any(|known| known == name) {
        return None;
    }
    let hint = did_you_mean(name, NAMES.lines());
    let hint = if hint.is_empty() { "; leave out `torch` for an operator that PyTorch lacks" } else { &*hint };
    Some(format!("PyTorch has no function `torch.{name}`{hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_is_told_with_the_right_one() {
        assert_eq!(problem("nn.functional.rms_norm"), None);
        assert_eq!(problem("Tensor.to"), None);
        assert_eq!(problem("ops.prims.convert_element_type"), None);
        assert_eq!(problem("ops.torchvision.nms"), None);
        let misspelt = problem("nn.functional.rms_nrom").unwrap_or_default();
        assert!(misspelt.ends_with("did you mean `nn.functional.rms_norm`?"), "{misspelt}");
        assert!(problem("quite_another").is_some_and(|problem| problem.contains("leave out `torch`")));
    }
}
