//! Other values of an attribute: to find where a pattern has it, and to test a rewrite with more than its samples say.

use fulgurite_kernels::DType;

use crate::argument::{Attribute, AttributeType, Scalar};
use crate::mesh::Axis;
use crate::operator::ParamDef;

/// Values of the parameter's type other than `value`, the most useful first. A rule may refuse some of them.
pub fn other_values(param: &ParamDef, value: &Attribute) -> Vec<Attribute> {
    let name = (param.type_name)();
    let mut others = alternatives(name.trim_end_matches('?'), value);
    if name.ends_with('?') {
        others.push(Attribute::None);
    }
    let mut kept: Vec<Attribute> = Vec::new();
    for other in others {
        if other != *value && (param.accepts)(&other) && !kept.contains(&other) {
            kept.push(other);
        }
    }
    kept
}

/// As [`other_values`], by the name of a type.
fn alternatives(name: &str, value: &Attribute) -> Vec<Attribute> {
    let floats = |number: f64| {
        // Near ones, and such that the smallest number beside others is seen.
        [number * 4.0, number + 0.75, number / 2.0, 0.5, 2.0, 1e-3, -1.0].map(|number| number.to_attribute()).to_vec()
    };
    let integers =
        |number: i64| [number + 1, number - 1, 0, 1, 2, -1, number * 2].map(|number| number.to_attribute()).to_vec();
    match value {
        Attribute::Scalar(Scalar::Bool(value)) => vec![(!*value).to_attribute()],
        Attribute::Scalar(Scalar::Int(value)) => integers(*value),
        Attribute::Scalar(Scalar::Float(value)) => floats(*value),
        Attribute::DType(_) => DType::REAL.iter().map(DType::to_attribute).collect(),
        Attribute::List(items) => {
            let mut lists: Vec<Vec<Attribute>> = vec![items.iter().rev().cloned().collect()];
            for (i, item) in items.iter().enumerate() {
                for other in alternatives(name.trim_end_matches("[]"), item) {
                    let mut list = items.to_vec();
                    list[i] = other;
                    lists.push(list);
                }
            }
            lists.into_iter().map(|list| Attribute::List(list.into())).collect()
        }
        Attribute::None if matches!(name, "float" | "number") => floats(1e-3),
        Attribute::None if matches!(name, "int" | "size") => integers(1),
        Attribute::None if name == "bool" => vec![true.to_attribute(), false.to_attribute()],
        Attribute::None if name == "dtype" => DType::REAL.iter().map(DType::to_attribute).collect(),
        // An axis of a mesh, whose number of ranks is that of the operands.
        Attribute::Text(axis) if name == "str" => {
            let other = |axis: Axis| text(&format!("other_{axis}"));
            axis.parse().map(other).into_iter().collect()
        }
        // The variants of an enum: `"none"|"tanh"`.
        _ => name.split('|').filter_map(|word| word.strip_prefix('"')?.strip_suffix('"')).map(text).collect(),
    }
}

fn text(word: &str) -> Attribute {
    Attribute::Text(word.into())
}

#[cfg(test)]
mod tests {
    use super::other_values;
    use crate::argument::{Attribute, AttributeType};
    use crate::expansion::attribute;

    crate::attribute_enum! {
        /// A word.
        enum Word {
            /// The first.
            One = "one",
            /// The second.
            Two = "two",
            /// One more.
            Other = "other",
        }
    }

    #[test]
    fn every_type_has_another_value() {
        fn of<T: AttributeType>(value: T) -> Vec<Attribute> {
            let others = other_values(&attribute::define::<T>("x"), &value.to_attribute());
            assert!(others.iter().all(|other| T::from_attribute(other).is_some() && *other != value.to_attribute()));
            others
        }
        assert_eq!(of(true), [false.to_attribute()]);
        assert_eq!(of(Word::Two), [Word::One, Word::Other].map(|other| other.to_attribute()));
        assert!(of(1e-5).len() > 3 && of(0.0).len() > 3 && of(0_i64).len() > 2 && of(0_usize).len() > 1);
        assert!(of(Some(1e-5)).contains(&Attribute::None) && of(None::<f64>).len() > 3 && !of(None::<Word>).is_empty());
        assert!(!of(vec![1_i64, 2]).is_empty() && !of(fulgurite_kernels::DType::F32).is_empty());
    }
}
