//! A state that a compiled function updates call after call, and that no call looks at.

use std::fmt;
use std::sync::Arc;

use super::{Compiled, Forms, Jit, Key, results};
use crate::argument::Attribute;
use crate::array::Array;
use crate::error::{Error, Result};
use crate::program::BoundState;
use crate::tracer::Tensor;
use crate::tree::Tree;

/// A state of arrays, the tree `T` with an [`Array`] at each leaf, that a function `(state, ...) -> (state, R)`
/// updates: parameters and moments of a training step. [`Jit::call_bound`] takes it, updates it and gives back `R`.
///
/// A call by [`Jit::call`] looks at every array that it is given: does it have the form that the program was compiled
/// for, does nobody else hold it, where is it? Here the state is the function's own from call to call, and a call on a
/// device looks at the other arguments alone, if
///
/// - the state is donated, and every array of it comes back in its own place: updated, or as it came;
/// - the other arguments and results are small: at most 1 MiB each;
/// - the call before was one of this function, the other arguments had the same forms, and the state was not looked at
///   since.
///
/// A call that finds one of these otherwise is what [`Jit::call`] does, with its checks and its errors.
pub struct Bound<T: Tree<Leaf = Tensor>, R> {
    held: Held<T, R>,
}

enum Held<T: Tree<Leaf = Tensor>, R> {
    /// As a caller gave it, or may have seen it: its arrays may be shared.
    Tree(T::With<Array>),
    /// Nobody else has seen it.
    Bound(Box<Last<T, R>>),
    /// A call failed that had it.
    Gone,
}

struct Last<T, R> {
    compiled: Arc<Compiled<(T, R)>>,
    state: BoundState,
    /// How many leaves and how many attributes of the key are the state's: the first ones.
    counts: (usize, usize),
}

impl<T: Tree<Leaf = Tensor>, R> fmt::Debug for Bound<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.held {
            Held::Tree(_) => "Bound(a state)",
            Held::Bound(_) => "Bound(the state of the last call)",
            Held::Gone => "Bound(no state: a call failed that had it)",
        })
    }
}

impl<T: Tree<Leaf = Tensor> + Clone, R> Bound<T, R> {
    /// To update this state.
    pub fn new(state: T::With<Array>) -> Bound<T, R> {
        Bound { held: Held::Tree(state) }
    }

    /// The state, after all calls so far. The next call looks at all of it again.
    ///
    /// # Errors
    /// If the last call failed: the state went with it, as donated arguments do.
    pub fn get(&mut self) -> Result<&T::With<Array>> {
        self.held = Held::Tree(std::mem::replace(&mut self.held, Held::Gone).into_tree()?);
        match &self.held {
            Held::Tree(state) => Ok(state),
            Held::Bound(_) | Held::Gone => unreachable!("a tree, as set above"),
        }
    }

    /// As [`Bound::get`]; calls by [`Bound`] end.
    ///
    /// # Errors
    /// As [`Bound::get`].
    pub fn into_inner(self) -> Result<T::With<Array>> {
        self.held.into_tree()
    }

    /// Whether the last call left the state so that the next one need not look at it.
    pub fn is_bound(&self) -> bool {
        matches!(self.held, Held::Bound(_))
    }
}

impl<T: Tree<Leaf = Tensor> + Clone, R> Held<T, R> {
    fn into_tree(self) -> Result<T::With<Array>> {
        match self {
            Held::Tree(state) => Ok(state),
            Held::Bound(last) => Ok(results(&last.compiled.structure.0, last.state.into_arrays())),
            Held::Gone => Err(Error::Argument {
                argument: "state".into(),
                message: "is gone: it was an argument of a call that failed; begin again with a new state".into(),
            }),
        }
    }
}

/// Arguments of a function whose first one is its state: tuples.
pub trait WithState: Tree<Leaf = Array> {
    /// The first argument.
    type State: Tree<Leaf = Array>;
    /// The others: a tuple.
    type Others: Tree<Leaf = Array>;

    /// All arguments.
    fn joined(state: Self::State, others: Self::Others) -> Self;
}

macro_rules! with_state {
    ($($other:ident)+) => {
        impl<S: Tree<Leaf = Array>, $($other: Tree<Leaf = Array>),+> WithState for (S, $($other,)+) {
            type State = S;
            type Others = ($($other,)+);
            #[expect(non_snake_case, reason = "a variable for each type")]
            fn joined(state: S, ($($other,)+): Self::Others) -> Self {
                (state, $($other,)+)
            }
        }
    };
}
with_state!(A);
with_state!(A B);
with_state!(A B C);
with_state!(A B C D);
with_state!(A B C D E);

impl<I, T, R, F> Jit<I, (T, R), F>
where
    I: WithState<State = T::With<Array>>,
    I::With<Tensor>: Tree<Leaf = Tensor, With<Tensor> = I::With<Tensor>>,
    <I::Others as Tree>::With<Tensor>: Tree<Leaf = Tensor, With<Array> = I::Others>,
    T: Tree<Leaf = Tensor> + Clone,
    R: Tree<Leaf = Tensor> + Clone,
    F: Fn(I::With<Tensor>) -> (T, R),
{
    /// Calls the function on a state, which is updated, and on the `others` of its arguments, a tuple. The results
    /// besides the state. See [`Bound`].
    ///
    /// # Errors
    /// As [`Jit::call`]; the state is gone then.
    pub fn call_bound(&self, state: &mut Bound<T, R>, others: I::Others) -> Result<R::With<Array>> {
        let others = match std::mem::replace(&mut state.held, Held::Gone) {
            Held::Bound(last) => {
                let mut attributes = Vec::new();
                others.attributes(&mut attributes);
                let mut inputs: Vec<Array> = Vec::with_capacity(8);
                let tree = others.map(&mut |array| {
                    inputs.push(array);
                    Tensor::PLACEHOLDER
                });
                if self.is_again(&last, &inputs, &attributes) {
                    let outputs = last.compiled.program.run_bound(&last.state, inputs)?;
                    let results = results(&last.compiled.structure.1, outputs);
                    state.held = Held::Bound(last);
                    return Ok(results);
                }
                state.held = Held::Bound(last);
                let mut inputs = inputs.into_iter();
                tree.map(&mut |_| inputs.next().unwrap_or_else(|| unreachable!("one for each leaf")))
            }
            held => {
                state.held = held;
                others
            }
        };
        let tree = std::mem::replace(&mut state.held, Held::Gone).into_tree()?;
        let (compiled, inputs) = self.compiled_for(I::joined(tree, others))?;
        let mut outputs = compiled.program.run_matching(inputs)?;
        let (kept, others) = &compiled.structure;
        let mut leaves = 0;
        kept.clone().map(&mut |leaf: Tensor| {
            leaves += 1;
            leaf
        });
        state.held = match self.bound(&compiled, leaves, &mut outputs) {
            Some(last) => Held::Bound(Box::new(last)),
            None => {
                let rest = outputs.split_off(leaves);
                Held::Tree(results(kept, std::mem::replace(&mut outputs, rest)))
            }
        };
        Ok(results(others, outputs))
    }

    /// Whether a call with the state of `last` and these other arguments runs the same program.
    fn is_again(&self, last: &Last<T, R>, inputs: &[Array], attributes: &[Attribute]) -> bool {
        let again = self.cache.last(|key, forms| self.matches_behind((key, forms), last.counts, inputs, attributes));
        again.is_some_and(|compiled| Arc::ptr_eq(&compiled, &last.compiled))
    }

    /// Keeps the first `leaves` of a run's outputs as the state of the next one, if that would find the same program;
    /// the rest are left.
    fn bound(&self, compiled: &Arc<Compiled<(T, R)>>, leaves: usize, outputs: &mut Vec<Array>) -> Option<Last<T, R>> {
        if outputs.len() < leaves {
            return None;
        }
        let mut attributes = Vec::new();
        compiled.structure.0.attributes(&mut attributes);
        let begins = |key: &Key, forms: &Forms| {
            let first = &outputs[..leaves];
            key.leaves.len() >= leaves
                && key.attributes.starts_with(&attributes)
                && self.have_forms((key, forms), 0, first)
        };
        let again = self.cache.last(begins)?;
        if !Arc::ptr_eq(&again, compiled) {
            return None;
        }
        let state = compiled.program.bind(outputs, leaves)?;
        Some(Last { compiled: again, state, counts: (leaves, attributes.len()) })
    }
}
