//! What differs from PyTorch, from the two lists that the comparisons with PyTorch keep: cases of PyTorch's own inputs,
//! by PyTorch's names, and samples of operators, by theirs.

use fulgurite::operator::OperatorDef;
use serde::Deserialize;

/// Cases of PyTorch's own inputs, which `tests/opinfo/opinfo.py` compares.
const OPINFO: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/opinfo/known.json"));
/// Samples of operators, which `tests/golden/operators.py` leaves out.
const GOLDEN: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/different.json"));

#[derive(Deserialize)]
struct Known {
    op: String,
    cases: usize,
    because: String,
}

#[derive(Deserialize)]
struct Different {
    op: String,
    cases: String,
    because: String,
}

/// A difference of one operator.
#[derive(Debug, PartialEq)]
pub struct Difference {
    /// Which cases: `3 of PyTorch's own inputs`, `samples u8/.*`.
    pub cases: String,
    pub because: String,
}

/// Both lists.
pub struct Differences {
    known: Vec<Known>,
    different: Vec<Different>,
}

impl Differences {
    /// Reads the lists.
    ///
    /// # Errors
    /// If one of them is not what it should be.
    pub fn read() -> Result<Differences, serde_json::Error> {
        Ok(Differences { known: serde_json::from_str(OPINFO)?, different: serde_json::from_str(GOLDEN)? })
    }

    /// Those of an operator.
    pub fn of(&self, def: &OperatorDef) -> Vec<Difference> {
        let known = self.known.iter().filter(|row| def.torch == Some(row.op.as_str()));
        let known = known.map(|row| Difference {
            cases: format!("{} of PyTorch's own inputs", row.cases),
            because: row.because.clone(),
        });
        let different = self.different.iter().filter(|row| row.op == def.name);
        let different =
            different.map(|row| Difference { cases: format!("samples {}", row.cases), because: row.because.clone() });
        known.chain(different).collect()
    }
}

#[cfg(test)]
mod tests {
    use fulgurite::registry::{find_operator, operators};

    use super::*;

    #[test]
    fn every_difference_is_of_an_operator() {
        let all = Differences::read().unwrap();
        let operators = operators();
        for row in &all.different {
            assert!(operators.iter().any(|def| def.name == row.op), "{}", row.op);
        }
        for row in &all.known {
            assert!(operators.iter().any(|def| def.torch == Some(row.op.as_str())), "{}", row.op);
        }
        let found = all.of(find_operator("copysign").unwrap());
        assert!(
            found.iter().any(|of| of.because.contains("infinities") && of.cases.contains("own inputs")),
            "{found:?}"
        );
        let found = all.of(find_operator("trapezoid").unwrap());
        assert!(found.iter().any(|of| of.cases == "samples u8/.*"), "{found:?}");
    }
}
