//! Makes a failing program smaller, as long as it still fails in the same way.

use std::time::{Duration, Instant};

use super::arrange::Arrangement;
use super::case::{Case, Input};
use super::config::Config;
use super::extents;
use super::judge::{Against, Failure, fails};
use crate::argument::{Arg, map_arguments};
use crate::executor_list::REFERENCE;
use crate::problem::Check;
use crate::samples::SampleTensor;

/// The smallest program that was found, and how it fails.
pub(super) fn minimize(case: Case, failure: Failure, limit: Duration) -> (Case, Failure) {
    let mut state = Search { case, failure, deadline: Instant::now() + limit };
    while state.round() {}
    (state.case, state.failure)
}

struct Search {
    case: Case,
    failure: Failure,
    deadline: Instant,
}

impl Search {
    /// Tries everything once; whether anything was gained.
    fn round(&mut self) -> bool {
        let mut gained = false;
        gained |= self.fewer_results();
        gained |= self.without_gradient();
        gained |= self.shorter();
        gained |= self.simpler_inputs();
        gained |= self.smaller();
        gained |= self.fewer_flags();
        gained && Instant::now() < self.deadline
    }

    /// Takes a program if it fails like this one.
    fn takes(&mut self, case: Case) -> bool {
        if Instant::now() >= self.deadline {
            return false;
        }
        let case = case.pruned();
        match fails(&case, &self.failure) {
            Some(failure) => {
                (self.case, self.failure) = (case, failure);
                true
            }
            None => false,
        }
    }

    fn fewer_results(&mut self) -> bool {
        if self.case.results.len() < 2 {
            return false;
        }
        let results = self.case.results.clone();
        if results.iter().any(|one| self.takes(Case { results: vec![*one], ..self.case.clone() })) {
            return true;
        }
        let mut gained = false;
        let mut at = 0;
        while at < self.case.results.len() && self.case.results.len() > 1 {
            let mut fewer = self.case.clone();
            fewer.results.remove(at);
            let before = self.case.results.len();
            if self.takes(fewer) {
                gained = true;
            }
            at += usize::from(self.case.results.len() == before);
        }
        gained
    }

    fn without_gradient(&mut self) -> bool {
        self.case.gradient && self.takes(Case { gradient: false, ..self.case.clone() })
    }

    /// Ends the program at an earlier call, or begins it at a later one.
    fn shorter(&mut self) -> bool {
        let mut gained = false;
        let mut at = self.case.calls.len();
        while at > 0 && self.case.calls.len() > 1 {
            at = at.min(self.case.calls.len()) - 1;
            gained |= self.ended_before(at) || self.given(at);
        }
        gained
    }

    /// Returns what call `at` reads, in place of what comes from it.
    fn ended_before(&mut self, at: usize) -> bool {
        let inputs = self.case.inputs.len();
        let mut results: Vec<usize> = self.case.calls[at]
            .arguments
            .iter()
            .flat_map(Arg::tensors)
            .copied()
            .filter(|value| *value >= inputs)
            .collect();
        results.dedup();
        let first = self.case.values_before(at);
        let own = first..first + self.case.calls[at].results;
        results.extend(self.case.results.iter().copied().filter(|value| !own.contains(value)));
        let reaches = self.case.calls[at + 1..]
            .iter()
            .any(|call| call.arguments.iter().flat_map(Arg::tensors).any(|value| own.contains(value)));
        !reaches && !results.is_empty() && self.takes(Case { results, ..self.case.clone() })
    }

    /// The results of call `at` as inputs with the values that they have.
    fn given(&mut self, at: usize) -> bool {
        match self.with_values(at) {
            Ok(case) => self.takes(case),
            Err(_) => false,
        }
    }

    fn with_values(&self, at: usize) -> Check<Case> {
        let case = &self.case;
        let (first, inputs) = (case.values_before(at), case.inputs.len());
        let count = case.calls[at].results;
        let values = Case { results: (first..first + count).collect(), gradient: false, ..case.clone() }.pruned();
        let outputs = Config::plain(REFERENCE).run(&values)?;
        let mut next = case.clone();
        for output in &outputs {
            let tensor = SampleTensor::literal(output.shape(), output.dtype(), output.to_f64()?.into());
            next.inputs.push(Input { tensor, arrangement: Arrangement::Dense, donated: false, same_as: None });
        }
        next.calls.remove(at);
        let renumber = |value: &usize| match *value {
            value if value < inputs => value,
            value if value < first => value + count,
            value if value < first + count => inputs + value - first,
            value => value,
        };
        for call in &mut next.calls {
            call.arguments = map_arguments(&call.arguments, renumber);
        }
        next.results = case.results.iter().map(renumber).filter(|value| *value >= next.inputs.len()).collect();
        if next.results.is_empty() {
            return Err("nothing is left".into());
        }
        Ok(next)
    }

    fn simpler_inputs(&mut self) -> bool {
        let mut gained = false;
        for at in 0..self.case.inputs.len() {
            let simpler: [fn(&mut Input); 3] = [
                |input| input.arrangement = Arrangement::Dense,
                |input| input.donated = false,
                |input| input.same_as = None,
            ];
            for change in simpler {
                let Some(own) = self.case.inputs.get(at) else { break };
                let mut other = own.clone();
                change(&mut other);
                let same = other.arrangement == own.arrangement
                    && other.donated == own.donated
                    && other.same_as == own.same_as;
                if !same {
                    let mut case = self.case.clone();
                    case.inputs[at] = other;
                    gained |= self.takes(case);
                }
            }
        }
        gained
    }

    fn smaller(&mut self) -> bool {
        let mut gained = false;
        for old in self.case.extents().into_iter().rev() {
            for new in extents::smaller(old) {
                let case = self.case.resized(&|extent| if extent == old { new } else { extent });
                if self.takes(case) {
                    gained = true;
                    break;
                }
            }
        }
        gained | self.smaller_axes()
    }

    /// One axis of all inputs, where two have the same extent for different reasons.
    fn smaller_axes(&mut self) -> bool {
        let mut gained = false;
        let most = self.case.inputs.iter().map(|input| input.tensor.shape().len()).max().unwrap_or(0);
        for axis in 0..most {
            let of = |input: &Input| input.tensor.shape().get(axis).copied();
            let Some(old) = self.case.inputs.iter().filter_map(of).max() else { continue };
            for new in extents::smaller(old) {
                let mut case = self.case.clone();
                for input in &mut case.inputs {
                    let mut shape = input.tensor.shape().to_vec();
                    if shape.get(axis) == Some(&old) {
                        shape[axis] = new;
                        input.tensor = input.tensor.clone().reshaped(&shape);
                    }
                }
                if self.takes(case) {
                    gained = true;
                    break;
                }
            }
        }
        gained
    }

    fn fewer_flags(&mut self) -> bool {
        let mut gained = false;
        loop {
            // Both ways must ask for less, so that they still differ in one thing alone.
            let simpler = self.failure.config.simpler().into_iter().find_map(|config| {
                let mut failure = Failure { config: config.clone(), ..self.failure.clone() };
                if let (Against::Bits(other), true) = (&failure.against, self.failure.config.neutral.is_some()) {
                    config.neutral?;
                    failure.against =
                        Against::Bits(Config { neutral: other.neutral, ..Config { neutral: None, ..config } });
                }
                fails(&self.case, &failure)
            });
            match simpler {
                Some(failure) if Instant::now() < self.deadline => {
                    self.failure = failure;
                    gained = true;
                }
                _ => return gained,
            }
        }
    }
}
