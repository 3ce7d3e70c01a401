//! What the streams of a device do when: whole runs and copies, with the times of the device.

use std::time::Duration;

use super::context::DeviceContext;
use super::error::DeviceError;
use super::stream::{DeviceEvent, DeviceStream};
use crate::stream_kind::StreamKind;

/// How copies of inputs are called: this, and the function's name.
pub const INPUTS: &str = "inputs of ";

/// One piece of a stream's work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Activity {
    /// What it is: a function's name, or what is copied.
    pub what: String,
    /// The stream that it runs on.
    pub stream: StreamKind,
    /// When it begins, after the timeline did.
    pub start: Duration,
    /// How long it takes.
    pub time: Duration,
}

/// Activities that are being recorded.
#[derive(Debug)]
pub(super) struct Timeline {
    origin: Box<dyn DeviceEvent>,
    marks: Vec<Marks>,
    /// Whether it times candidates, and nobody else asked for it.
    pub(super) of_choices: bool,
}

/// The marks around an activity.
#[derive(Debug)]
pub(super) struct Marks {
    what: String,
    stream: StreamKind,
    begin: Box<dyn DeviceEvent>,
    end: Box<dyn DeviceEvent>,
}

impl Marks {
    /// Marks the begin of an activity on `stream`, which is of kind `kind`.
    pub(super) fn begin(
        context: &dyn DeviceContext,
        stream: &dyn DeviceStream,
        kind: StreamKind,
        what: String,
    ) -> Result<Marks, DeviceError> {
        let marks = Marks { what, stream: kind, begin: context.event(true)?, end: context.event(true)? };
        stream.record(&*marks.begin)?;
        Ok(marks)
    }

    /// Marks its end.
    pub(super) fn end(self, stream: &dyn DeviceStream, timeline: &mut Timeline) -> Result<(), DeviceError> {
        stream.record(&*self.end)?;
        timeline.marks.push(self);
        Ok(())
    }
}

impl Timeline {
    /// A timeline that begins behind what is enqueued on `stream`.
    pub(super) fn begin(context: &dyn DeviceContext, stream: &dyn DeviceStream) -> Result<Timeline, DeviceError> {
        let origin = context.event(true)?;
        stream.record(&*origin)?;
        Ok(Timeline { origin, marks: Vec::new(), of_choices: false })
    }

    /// What was recorded, in the order of the beginnings. What has not ended is waited for.
    pub(super) fn activities(self) -> Result<Vec<Activity>, DeviceError> {
        let duration = |milliseconds: f64| Duration::from_secs_f64(milliseconds.max(0.0) / 1e3);
        let mut activities = Vec::with_capacity(self.marks.len());
        for Marks { what, stream, begin, end } in self.marks {
            // Of a copy on a stream that is no stream of the device's state.
            end.synchronize()?;
            let start = duration(begin.milliseconds_since(&*self.origin)?);
            activities.push(Activity { what, stream, start, time: duration(end.milliseconds_since(&*begin)?) });
        }
        activities.sort_by_key(|activity| activity.start);
        Ok(activities)
    }
}
