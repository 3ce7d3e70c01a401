//! A picture of an elementwise function of one number: the operator's reference, and its slope where it has one.

use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use fulgurite::argument::Arg;
use fulgurite::arithmetic::Arithmetic;
use fulgurite::operator::{Class, OperatorDef, ParamKind, ResultsDef, RuleSet};
use fulgurite::reference::ReferenceTensor;
use fulgurite::testing::rules::TestRules;
use fulgurite::testing::samples::SampleTensor;
use fulgurite::transforms::autodiff::rules::GradientRules;
use fulgurite::transforms::decompose::decompose;
use fulgurite::{DType, Target};
use fulgurite_plots::escape_text;
use ndarray::{ArrayD, IxDyn};

use super::super::subject::trace_sample;

/// The numbers from `-SPAN` to `SPAN` are drawn.
const SPAN: f64 = 6.0;
/// Pieces between two whole numbers.
const PIECES: usize = 24;
/// Width and height in units of the drawing.
const SIZE: f64 = 300.0;

/// The operator as a function of one number, with its other arguments at their defaults.
struct Function {
    def: &'static OperatorDef,
}

impl Function {
    /// `None` for an operator that is none: of several tensors, of whole rows, random.
    fn of(def: &'static OperatorDef) -> Option<Function> {
        let first = def.params.first()?;
        let numbers = match first.kind {
            ParamKind::Tensor(class) | ParamKind::Operand(class) => class != Class::Integer && class != Class::Boolean,
            _ => false,
        };
        let others = |kind| matches!(kind, ParamKind::Attribute | ParamKind::Optional(_));
        let alone = def.params[1..]
            .iter()
            .all(|param| others(param.kind) && (param.default.is_some() || param.kind.is_optional()));
        let one = matches!(def.results, ResultsDef::Named([_]));
        if !numbers || !alone || !one || def.effects.random || def.effects.collective {
            return None;
        }
        // Of elements one by one: every line of its decomposition is arithmetic.
        let tensor = SampleTensor::uniform(&[7], DType::F32, 0.1, 0.9, 1);
        let mut arguments = vec![Arg::Tensor(tensor)];
        arguments.extend(def.params[1..].iter().map(|param| param.default_argument()));
        let trace = trace_sample(def, &arguments, &Target::cpu()).ok()?;
        let opened = decompose(&trace, |_| true);
        let arithmetic = |of: &'static OperatorDef| Arithmetic::of(of).scalar.is_some();
        let mut symbols = opened.block.symbols.iter().map(|symbol| symbol.operator());
        let elementwise = symbols.len() > 0 && symbols.all(|of| of.is_some_and(arithmetic));
        elementwise.then_some(Function { def })
    }

    /// Its values by the f64 reference.
    fn values(&self, at: &[f64]) -> Option<Vec<f64>> {
        let rule = TestRules::of(self.def).reference?;
        let input = ArrayD::from_shape_vec(IxDyn(&[at.len()]), at.to_vec()).ok()?;
        let mut arguments = vec![Arg::Tensor(ReferenceTensor::from_floats(DType::F32, input))];
        arguments.extend(self.def.params[1..].iter().map(|param| param.default_argument()));
        let computed = catch_unwind(AssertUnwindSafe(|| rule(&arguments))).ok()?.ok()?;
        let values: Vec<f64> = computed.first()?.floats().iter().copied().collect();
        (values.len() == at.len()).then_some(values)
    }
}

/// The greatest number of the vertical axis: small functions are drawn larger.
fn height(values: &[f64]) -> f64 {
    let greatest = values.iter().filter(|value| value.is_finite()).fold(0.0_f64, |most, value| most.max(value.abs()));
    if greatest <= 1.6 { 2.0 } else { SPAN }
}

/// The curve through these points as a path, interrupted where it jumps or leaves the picture.
fn path(points: &[(f64, f64)], height: f64) -> String {
    let mut text = String::new();
    let mut before: Option<(f64, f64)> = None;
    for &(x, y) in points {
        let inside = y.is_finite() && y.abs() <= 2.0 * height;
        let jumps = before.is_some_and(|(_, last)| (y - last).abs() > 0.45 * height);
        if inside {
            let (across, down) = ((x + SPAN) / (2.0 * SPAN) * SIZE, (height - y) / (2.0 * height) * SIZE);
            let step = if before.is_some() && !jumps { 'L' } else { 'M' };
            let _ = write!(text, "{step}{across:.1} {down:.1}");
        }
        before = inside.then_some((x, y));
    }
    text
}

/// The picture as a figure of a page; `None` where there is nothing to draw.
pub fn figure(def: &'static OperatorDef) -> Option<String> {
    let function = Function::of(def)?;
    let count = 2 * SPAN as usize * PIECES;
    // Between whole numbers and beside them, where functions have their poles and kinks.
    let at: Vec<f64> = (0..count).map(|i| (i as f64 + 0.5) / PIECES as f64 - SPAN).collect();
    let values = function.values(&at)?;
    let height = height(&values);
    let curve = path(&at.iter().copied().zip(values.iter().copied()).collect::<Vec<_>>(), height);
    if curve.is_empty() {
        return None;
    }
    let slope = match GradientRules::of(def).no_grad {
        Some(_) => String::new(),
        None => slope(&function, &at, height).unwrap_or_default(),
    };
    let mut grid = String::new();
    let steps = if height == SPAN { 6 } else { 2 };
    for i in -steps..=steps {
        let down = (f64::from(steps) - f64::from(i)) / (2.0 * f64::from(steps)) * SIZE;
        let _ = write!(grid, "M0 {down:.1}H{SIZE}");
    }
    for i in -6..=6 {
        let _ = write!(grid, "M{:.1} 0V{SIZE}", (f64::from(i) + SPAN) / (2.0 * SPAN) * SIZE);
    }
    let middle = SIZE / 2.0;
    let name = escape_text(def.name);
    let slope_line = if slope.is_empty() { String::new() } else { format!("<path class=\"slope\" d=\"{slope}\"/>") };
    let legend = if slope.is_empty() { "" } else { "; dashed: its slope" };
    Some(format!(
        "<figure><svg viewBox=\"-1 -1 {size} {size}\" role=\"img\" aria-label=\"{name} of numbers from -{SPAN} to {SPAN}{legend}\">\
         <path class=\"grid\" d=\"{grid}\"/><path class=\"axis\" d=\"M0 {middle}H{SIZE}M{middle} 0V{SIZE}\"/>\
         {slope_line}<path class=\"curve\" d=\"{curve}\"/></svg>\
         <figcaption>{name} of the numbers from -{SPAN} to {SPAN}; upwards from -{height} to {height}{legend}</figcaption></figure>\n",
        size = SIZE + 2.0,
    ))
}

/// The slope by central differences of the reference, as a path.
fn slope(function: &Function, at: &[f64], height: f64) -> Option<String> {
    const STEP: f64 = 1e-6;
    let moved = |by: f64| function.values(&at.iter().map(|x| x + by).collect::<Vec<_>>());
    let (below, above) = (moved(-STEP)?, moved(STEP)?);
    let points = at.iter().zip(below.iter().zip(&above)).map(|(x, (a, b))| (*x, (b - a) / (2.0 * STEP)));
    Some(path(&points.collect::<Vec<_>>(), height))
}

#[cfg(test)]
mod tests {
    use fulgurite::registry::find_operator;

    use super::*;

    fn drawn(name: &str) -> Option<String> {
        figure(find_operator(name).unwrap())
    }

    #[test]
    fn elementwise_functions_of_one_number_are_drawn() {
        let relu = drawn("relu").unwrap();
        assert!(relu.contains("class=\"slope\"") && relu.contains("aria-label=\"relu of numbers"), "{relu}");
        assert!(drawn("prims::exp").is_some() && drawn("gelu").is_some());
        // A step has no slope worth a line, and is interrupted where it jumps.
        let floor = drawn("floor").unwrap();
        assert!(floor.matches('M').count() > 10, "{floor}");
        for name in ["softmax", "add", "sort", "dropout", "t", "sum"] {
            assert!(drawn(name).is_none(), "{name}");
        }
    }

    #[test]
    fn a_path_is_interrupted_at_jumps() {
        assert_eq!(path(&[(-6.0, 0.0), (0.0, 1.0), (6.0, 6.0)], 6.0), "M0.0 150.0L150.0 125.0M300.0 0.0");
        assert_eq!(path(&[(0.0, f64::NAN), (0.0, 100.0)], 6.0), "");
    }
}
