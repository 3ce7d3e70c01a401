//! Where the time of one run of a program went: a profile as `train --profile` writes it, read, and as data of a page.

use serde_json::{Value, json};

use crate::pool::Pool;

/// Times of a profile are below this many microseconds, more than thirty years: sums of them are numbers too.
const MOST_MICROSECONDS: f64 = 1e15;

/// What a device does in a second, in bytes or operations: quotients with it are numbers too.
pub const RATES: std::ops::RangeInclusive<f64> = 1.0..=1e21;

/// Where the time of one run went.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Timing {
    /// The function that was run.
    pub function: String,
    /// What it was compiled for.
    pub target: String,
    /// What the device reads and writes in a second at most, in bytes, if that is known.
    pub bytes_per_second: Option<f64>,
    /// What the device computes in a second at most, in floating-point operations, if that is known.
    pub flops_per_second: Option<f64>,
    /// How the two are known, in words (`measured`, `data sheet`, `given`), if the profile says so.
    pub sources: [Option<String>; 2],
    /// The symbols of one run.
    pub spans: Vec<Span>,
    /// What the streams did over several runs.
    pub timeline: Vec<Activity>,
}

/// One symbol.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Its operator, or what its region is called.
    pub name: String,
    /// The executor that ran it.
    pub executor: String,
    /// The name of its first result; empty if it has none.
    pub result: String,
    /// Its line of the program.
    pub line: String,
    /// The stream that it ran on.
    pub stream: String,
    /// When it began, in microseconds.
    pub start: f64,
    /// How long it took, in microseconds.
    pub time: f64,
    /// Bytes read and written, if the profile has them.
    pub bytes: Option<u64>,
    /// Arithmetic, if the profile has it.
    pub flops: Option<u64>,
}

/// A piece of a stream's work.
#[derive(Debug, Clone, PartialEq)]
pub struct Activity {
    /// The name of the activity.
    pub what: String,
    /// The stream.
    pub stream: String,
    /// When it began, in microseconds.
    pub start: f64,
    /// How long it took, in microseconds.
    pub time: f64,
}

impl Timing {
    /// Reads a profile: a trace of events whose process 0 has the symbols of one run, and process 1 the streams.
    ///
    /// # Errors
    /// A text that is no such profile, with what was expected.
    pub fn read(text: &str) -> Result<Timing, String> {
        let file: Value = serde_json::from_str(text).map_err(|error| format!("is no JSON: {error}"))?;
        let events = file["traceEvents"].as_array().ok_or("has no list traceEvents, expected a profile")?;
        let about = &file["otherData"];
        let ceiling = |name: &str| match &about[name] {
            Value::Null => Ok(None),
            value => match value.as_f64().filter(|rate| RATES.contains(rate)) {
                Some(rate) => Ok(Some(rate)),
                None => Err(format!("otherData: {name} is {value}, expected a number from 1 to 1e21")),
            },
        };
        let mut timing = Timing {
            function: about["function"].as_str().unwrap_or_default().to_owned(),
            target: about["target"].as_str().unwrap_or_default().to_owned(),
            bytes_per_second: ceiling("bytes_per_second")?,
            flops_per_second: ceiling("flops_per_second")?,
            sources: ["bytes_source", "flops_source"].map(|name| about[name].as_str().map(str::to_owned)),
            ..Timing::default()
        };
        for (i, event) in events.iter().enumerate().filter(|(_, event)| event["ph"] == "X") {
            let wrong = |field: &str, expected: &str| format!("event {i}: {field} is no {expected}");
            let string =
                |value: &Value, field: &str| value.as_str().map(str::to_owned).ok_or_else(|| wrong(field, "string"));
            let number = |field: &str| {
                let value = event[field].as_f64().filter(|value| (0.0..MOST_MICROSECONDS).contains(value));
                value.ok_or_else(|| wrong(field, "number of microseconds from 0 and below 1e15"))
            };
            let (name, (start, time)) = (string(&event["name"], "name")?, (number("ts")?, number("dur")?));
            if event["pid"] == 1 {
                timing.timeline.push(Activity { what: name, stream: string(&event["cat"], "cat")?, start, time });
                continue;
            }
            let arguments = &event["args"];
            timing.spans.push(Span {
                name,
                executor: string(&event["cat"], "cat")?,
                result: string(&arguments["result"], "args.result")?,
                line: string(&arguments["line"], "args.line")?,
                stream: string(&arguments["stream"], "args.stream")?,
                start,
                time,
                bytes: arguments["bytes"].as_u64(),
                flops: arguments["flops"].as_u64(),
            });
        }
        match timing.spans.is_empty() {
            true => Err("has no symbol of a run, expected a profile".into()),
            false => Ok(timing),
        }
    }

    /// As data: spans as `[name, executor, result, stream, start, time, bytes, flops, line]`, strings by their numbers,
    /// the line only where there is no result; activities as `[what, stream, start, time]`.
    pub(crate) fn to_json(&self, pool: &mut Pool) -> Value {
        let spans: Vec<Value> = self
            .spans
            .iter()
            .map(|span| {
                let [name, executor, stream] = [&span.name, &span.executor, &span.stream].map(|text| pool.string(text));
                let result = if span.result.is_empty() { -1 } else { pool.string(&span.result) as i64 };
                let line = if span.result.is_empty() { pool.string(&span.line) as i64 } else { -1 };
                json!([name, executor, result, stream, span.start, span.time, span.bytes, span.flops, line])
            })
            .collect();
        let timeline: Vec<Value> = self
            .timeline
            .iter()
            .map(|of| json!([pool.string(&of.what), pool.string(&of.stream), of.start, of.time]))
            .collect();
        json!({
            "function": self.function,
            "target": self.target,
            "bytes_per_second": self.bytes_per_second,
            "flops_per_second": self.flops_per_second,
            "sources": self.sources,
            "spans": spans,
            "timeline": timeline,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_read_and_what_is_none_is_named() {
        let arguments = json!({"result": "x", "line": "x = exp(a)", "stream": "compute", "bytes": 8, "flops": 2});
        let span = json!({"ph": "X", "name": "exp", "cat": "cpu", "ts": 1.5, "dur": 2, "pid": 0, "args": arguments});
        let copy = json!({"ph": "X", "name": "in", "cat": "copy", "ts": 0, "dur": 1, "pid": 1, "args": {}});
        let named = json!({"ph": "M", "name": "thread_name"});
        let about = json!({"function": "f", "target": "cpu", "bytes_per_second": 1e9, "flops_per_second": null});
        let file = |events: Value| json!({"traceEvents": events, "otherData": about.clone()}).to_string();
        let timing = Timing::read(&file(json!([span, copy, named]))).unwrap();
        assert_eq!((timing.spans.len(), timing.timeline.len()), (1, 1));
        assert_eq!((timing.spans[0].start, timing.spans[0].bytes), (1.5, Some(8)));
        assert_eq!((timing.bytes_per_second, timing.flops_per_second), (Some(1e9), None));
        let mut late = span.clone();
        late["dur"] = json!(-1);
        let timed = |start: Value| {
            let mut timed = span.clone();
            timed["ts"] = start;
            timed
        };
        let mut nameless = span.clone();
        nameless["args"]["result"] = json!(7);
        for (text, expected) in [
            ("{", "is no JSON"),
            ("{}", "has no list traceEvents"),
            (&*file(json!([copy])), "has no symbol of a run"),
            (&*file(json!([copy, late])), "event 1: dur is no number of microseconds from 0"),
            (&*file(json!([timed(json!(1e308))])), "event 0: ts is no number of microseconds from 0 and below 1e15"),
            (&*file(json!([timed(json!(null))])), "event 0: ts is no number"),
            (&*file(json!([span])).replace("1000000000.0", "1e308"), "otherData: bytes_per_second is 1e+308, expected"),
            (&*file(json!([span])).replace("1000000000.0", "-1"), "otherData: bytes_per_second is -1, expected"),
            (&*file(json!([nameless])), "event 0: args.result is no string"),
        ] {
            let error = Timing::read(text).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
