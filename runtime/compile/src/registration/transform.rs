//! Transforms of a running program, which take part in every compilation.

use crate::compile::{Place as StagePlace, UserTransform, stage_name};
use crate::error::{Place, Result};
use crate::registered::refused;
use crate::trace::Trace;

use super::{Registration, leaked, leaked_text, names};

const WHAT: &str = "transform";

/// A transform to be registered. It takes part in every compilation, before those of the options.
#[must_use = "nothing is registered before `.register()`"]
pub struct Transform {
    version: u32,
    transform: UserTransform,
}

impl Transform {
    /// A transform of that name, at [`StagePlace::Start`]. Its version is 1.
    pub fn build(
        name: impl Into<String>,
        apply: impl Fn(&Trace) -> Result<Trace> + Send + Sync + 'static,
    ) -> Transform {
        Transform { version: 1, transform: UserTransform::new(name, apply) }
    }

    /// Its version, for people and errors.
    pub fn version(self, version: u32) -> Self {
        Transform { version, ..self }
    }

    /// Sets the stage at which it runs.
    pub fn at(self, place: StagePlace) -> Self {
        Transform { transform: self.transform.at(place), ..self }
    }

    /// Registers it.
    ///
    /// # Errors
    /// If a transform of that name is registered and not withdrawn, or the name is empty or that of a stage.
    #[track_caller]
    pub fn register(self) -> Result<Registration<UserTransform>> {
        let place = Place::caller();
        let Transform { version, transform } = self;
        let fail = |message: String| refused(WHAT, &transform.name, place, message);
        names::label(&transform.name).map_err(&fail)?;
        stage_name(&transform.name).map_err(|error| fail(error.to_string()))?;
        let name = leaked_text(transform.name.as_str());
        Registration::new((WHAT, name, version), place, leaked(transform), Vec::new(), None)
    }
}
