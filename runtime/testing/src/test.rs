//! A generated test: what it knows, what it finds, and where its suite keeps its files.

use std::path::PathBuf;
use std::sync::Arc;

use fulgurite_kernels::DType;

use super::directives::{Template, Tolerance};
use super::executor_list::List;
use super::golden::Golden;
use super::problem::{Check, Problem};
use crate::executor::ExecutorDef;
use crate::operator::OperatorDef;

/// Where a suite keeps its files, and how its tests are repeated.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The folder of `<operator>.snap` files.
    pub snapshots: PathBuf,
    /// The folder of PyTorch's vectors.
    pub golden: PathBuf,
    /// Folders whose declarations must be linked.
    pub sources: Vec<PathBuf>,
    /// The command that a failure prints before the test's name.
    pub command: String,
    /// Tests of the first executor have the directives of the second: whether tolerances that one is allowed catch
    /// what another does wrong.
    pub directives_of: Option<[&'static str; 2]>,
    /// Selects tests that are ignored unless `-- --include-ignored` asks for them: those that another suite repeats.
    pub on_request: Option<fn(&GeneratedTest) -> bool>,
}

impl Default for Settings {
    /// `snapshots/`, `golden/` and `src/` of the package under test, whose folder cargo names when it runs tests.
    fn default() -> Settings {
        let root = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(PathBuf::new, PathBuf::from);
        let package = std::env::var("CARGO_PKG_NAME").map(|name| format!(" -p {name}")).unwrap_or_default();
        let target = std::env::current_exe()
            .ok()
            .and_then(|path| Some(path.file_stem()?.to_str()?.to_owned()))
            .map(|stem| stem.rsplit_once('-').map_or(stem.clone(), |(name, _)| name.to_owned()))
            .map(|name| format!(" --test {name}"))
            .unwrap_or_default();
        Settings {
            snapshots: root.join("snapshots"),
            golden: root.join("golden"),
            sources: vec![root.join("src")],
            command: format!("cargo test{package}{target} -- --exact"),
            directives_of: None,
            on_request: None,
        }
    }
}

/// What a generated test found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The declaration holds.
    Passed,
    /// There was nothing to test, because ...
    Nothing(String),
}

/// What a test does.
pub(crate) type Body = Box<dyn Fn() -> Result<Outcome, String> + Send + Sync>;

/// One generated test.
pub struct GeneratedTest {
    /// Unique: `rms_norm::consistency::cpu::f32`.
    pub name: String,
    /// The operator (or the rewrite, for its own template).
    pub operator: String,
    /// The template that it was generated from.
    pub template: Template,
    /// The executor that runs the operator, where that matters.
    pub executor: Option<&'static str>,
    /// The element type, where that matters.
    pub dtype: Option<DType>,
    /// Why a directive skips it.
    pub skip: Option<String>,
    /// What this machine lacks for it.
    pub lacks: Option<String>,
    /// The test.
    pub run: Body,
}

impl std::fmt::Debug for GeneratedTest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

/// What random programs are called in the place of an operator.
pub const PROGRAMS: &str = "programs";

/// What a template gets to know.
pub(crate) struct Context {
    pub def: &'static OperatorDef,
    pub template: Template,
    pub executor: Option<&'static ExecutorDef>,
    pub dtype: Option<DType>,
    /// What tolerance directives allow.
    pub tolerance: Tolerance,
    pub settings: Arc<Settings>,
    pub golden: Arc<Golden>,
}

impl Context {
    /// The executor that runs the operator.
    pub fn list(&self) -> Check<List> {
        match self.executor {
            Some(executor) => Ok(List::of(executor)),
            None => Ok(List::plain()?),
        }
    }
}

/// The sample that `FULGURITE_SAMPLE` selects.
pub(crate) fn selected_sample() -> Option<usize> {
    sample_variable().ok().flatten()
}

pub(crate) fn sample_variable() -> Check<Option<usize>> {
    match std::env::var("FULGURITE_SAMPLE") {
        Err(_) => Ok(None),
        Ok(text) => match text.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(Problem(format!("FULGURITE_SAMPLE is '{text}', expected the number of a sample, from 0"))),
        },
    }
}

/// `Passed`.
pub(crate) const PASSED: Check<Outcome> = Ok(Outcome::Passed);

/// `Nothing`, because of `reason`.
pub(crate) fn nothing(reason: &str) -> Check<Outcome> {
    Ok(Outcome::Nothing(reason.to_owned()))
}
