//! Trees of arrays: zeros like another tree, and moves between devices.

use crate::array::Array;
use crate::error::Result;
use crate::meta::Device;
use crate::tree::Tree;

/// A tree of zeros with the shapes, element types and devices of `tree`: the moments that an optimizer begins with.
///
/// # Errors
/// If the device is not available or there is not as much memory.
pub fn zeros_like<T: Tree<Leaf = Array> + Clone>(tree: &T) -> Result<T::With<Array>> {
    made(tree, |array| Array::zeros_on(array.device(), array.shape(), array.dtype()))
}

/// The same values on `device`.
///
/// # Errors
/// If the device is not available or there is not as much memory.
pub fn to_device<T: Tree<Leaf = Array> + Clone>(tree: &T, device: Device) -> Result<T::With<Array>> {
    made(tree, |array| array.to_device(device))
}

/// A tree of what `make` gives for each array.
///
/// # Errors
/// The first that `make` returns.
pub fn made<T: Tree<Leaf = Array> + Clone>(
    tree: &T,
    mut make: impl FnMut(&Array) -> Result<Array>,
) -> Result<T::With<Array>> {
    let leaves: Vec<Array> = tree.leaves().into_iter().map(|(_, leaf)| make(leaf)).collect::<Result<_>>()?;
    let mut leaves = leaves.into_iter();
    Ok(tree.clone().map(&mut |_| leaves.next().unwrap_or_else(|| unreachable!("one for each leaf"))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fulgurite_kernels::DType;

    #[test]
    fn zeros_have_the_forms_of_the_tree() {
        let tree = (Array::scalar(3.0), vec![Array::from_f64([2], DType::BF16, &[1.0, 2.0]).unwrap()]);
        let (first, rest) = zeros_like(&tree).unwrap();
        assert_eq!((first.item().unwrap(), rest[0].to_f64().unwrap()), (0.0, vec![0.0, 0.0]));
        assert_eq!(rest[0].dtype(), DType::BF16);
        assert_eq!(to_device(&tree, Device::CPU).unwrap().1[0].to_f64().unwrap(), [1.0, 2.0]);
    }
}
