//! Functions of trees whose form is known at run time: one program for each form.

use fulgurite_executors as _;
use fulgurite_ops::prelude::*;
use fulgurite_runtime::dyn_tree::DynTree;
use fulgurite_runtime::tree::Tree;
use fulgurite_runtime::{Array, Tensor, jit};

type Arrays = DynTree<Array>;

fn leaf(values: &[f32]) -> Arrays {
    Array::new([values.len()], values).unwrap().into()
}

/// Two layers and a head, below names.
fn model(names: [&str; 2]) -> Arrays {
    let layer = |scale: f32| DynTree::dict([("w", leaf(&[scale, scale + 1.0])), ("b", leaf(&[0.5, -0.5]))]).unwrap();
    let layers = DynTree::list([layer(1.0), layer(2.0)]).unwrap();
    DynTree::dict([(names[0], layers), (names[1], leaf(&[3.0, 3.0]))]).unwrap()
}

fn values(tree: &Arrays) -> Vec<(String, Vec<f32>)> {
    tree.leaves().into_iter().map(|(path, array)| (path, array.to_vec().unwrap())).collect()
}

/// Applies the layers that a tree has, and returns the result beside the tree's leaves, doubled.
fn forward((model, x): (DynTree<Tensor>, Tensor)) -> (Tensor, DynTree<Tensor>) {
    let mut y = x;
    for (_, entry) in model.entries() {
        for (_, layer) in entry.entries() {
            let of = |name: &str| *layer.get(name).and_then(DynTree::as_leaf).unwrap();
            y = y * of("w") + of("b");
        }
    }
    (y, model.map(&mut |leaf| leaf * 2.0))
}

#[test]
fn a_function_is_compiled_for_each_form_of_a_tree() {
    let f = jit(forward).named("forward").arguments(["model", "x"]).results(["y", "twice"]);
    let x = || Array::new([2], &[1.0_f32, 1.0]).unwrap();
    let call = |model: Arrays| f.call((model, x())).unwrap();
    let (y, twice) = call(model(["layers", "head"]));
    assert_eq!(y.to_vec::<f32>().unwrap(), [(1.0 + 0.5) * 2.0 + 0.5, (2.0 - 0.5) * 3.0 - 0.5]);
    let expected = [
        ("head", vec![6.0, 6.0]),
        ("layers.0.b", vec![1.0, -1.0]),
        ("layers.0.w", vec![2.0, 4.0]),
        ("layers.1.b", vec![1.0, -1.0]),
        ("layers.1.w", vec![4.0, 6.0]),
    ];
    assert_eq!(values(&twice), expected.map(|(path, values)| (path.to_owned(), values)));
    // Again, also with the entries in another order: nothing is compiled.
    call(model(["layers", "head"]));
    assert_eq!(f.compiles(), 1);
    // Leaves of the same number and shapes below other names are another form, and so are more layers.
    call(model(["blocks", "head"]));
    assert_eq!(f.compiles(), 2);
    let layers = (0..3).map(|_| model(["layers", "head"]).get("layers.0").unwrap().clone());
    call(DynTree::dict([("layers", DynTree::list(layers).unwrap())]).unwrap());
    assert_eq!((f.compiles(), f.programs()), (3, 3));
    let inputs = f.compile(&(model(["layers", "head"]), x())).unwrap().stages()[0].trace.to_string();
    assert!(inputs.contains("model.layers.0.b: f32[2]"), "{inputs}");
    assert_eq!(f.compiles(), 3);
}

#[test]
fn gradients_have_the_form_of_the_tree() {
    let loss = |(model, x): (DynTree<Tensor>, Tensor)| sum(forward((model, x)).0);
    let f = jit(loss).arguments(["model", "x"]).vjp().with_respect_to("model.layers");
    let tree = model(["layers", "head"]);
    let (loss, pullback) = f.call((tree.clone(), Array::new([2], &[1.0_f32, 1.0]).unwrap())).unwrap();
    assert_eq!(loss.to_vec::<f32>().unwrap(), [3.5 + 4.0]);
    let gradients = pullback.call([("result", Array::new([], &[1.0_f32]).unwrap())]).unwrap();
    let layers = gradients.tree("model.layers", tree.get("layers").unwrap().clone()).unwrap();
    // With y = (x w + b) w' + b': the gradients of b and w are w', of b' they are 1, of w' they are x w + b.
    let expected = [("0.b", vec![2.0, 3.0]), ("0.w", vec![2.0, 3.0]), ("1.b", vec![1.0, 1.0]), ("1.w", vec![1.5, 1.5])];
    assert_eq!(values(&layers), expected.map(|(path, values)| (path.to_owned(), values)));
}

#[test]
fn the_leaves_of_a_donated_tree_are_updated_in_place() {
    let step = |(state, rate): (DynTree<Tensor>, Tensor)| (state.map(&mut |leaf| leaf - leaf * rate),);
    let f = jit(step).arguments(["state", "rate"]).results(["state"]).donate("state");
    let rate = || Array::new([], &[0.5_f32]).unwrap();
    let compiled = f.compile(&(model(["layers", "head"]), rate())).unwrap();
    let donations = compiled.donations();
    assert!(donations.len() == 5 && donations.iter().all(|donation| donation.outcome.is_ok()), "{donations:?}");
    let (state,) = f.call((model(["layers", "head"]), rate())).unwrap();
    let (leaves, form) = state.flatten();
    let halves: Vec<Vec<f32>> = leaves.iter().map(|array| array.to_vec().unwrap()).collect();
    assert_eq!(halves, [vec![1.5, 1.5], vec![0.25, -0.25], vec![0.5, 1.0], vec![0.25, -0.25], vec![1.0, 1.5]]);
    assert_eq!(form, model(["layers", "head"]).flatten().1);
}
