//! `review`: planted changes are named in the summary and in the Markdown.

use std::path::Path;
use std::process::Command;

use crate::{Ran, run_in};

const STEP: &str = "tests/tests/models/snapshots/models__gpt2_traces__gpt2_train_step_cuda_planned.snap";
const HOST_STEP: &str = "tests/tests/models/snapshots/models__gpt2_traces__gpt2_train_step_planned.snap";
pub const NORM: &str = "tests/snapshots/rms_norm.snap";

/// A stored text of this repository.
fn stored(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)).unwrap()
}

/// A git repository in a temporary folder.
pub struct Repository(tempfile::TempDir);

impl Repository {
    /// With these files of this repository in its first commit.
    pub fn with(paths: &[&str]) -> Repository {
        let repository = Repository(tempfile::tempdir().unwrap());
        repository.git(&["init", "--quiet", "--initial-branch=main"]);
        paths.iter().for_each(|path| repository.write(path, &stored(path)));
        repository.write(".gitignore", "*.snap.new\n");
        repository.commit("first");
        repository
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.path().join(path)).unwrap()
    }

    /// Replaces a text that must be there.
    pub fn plant(&self, path: &str, from: &str, to: &str) {
        let text = self.read(path);
        assert!(text.contains(from), "{path} has no {from}");
        self.write(path, &text.replacen(from, to, 1));
    }

    pub fn git(&self, arguments: &[&str]) {
        let ran = Command::new("git")
            .args(["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"])
            .args(arguments)
            .current_dir(self.path())
            .output()
            .unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    }

    pub fn commit(&self, subject: &str) {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--message", subject]);
    }

    pub fn review(&self, arguments: &[&str]) -> Ran {
        run_in(self.path(), &[&["review"], arguments].concat())
    }

    /// Reviews for the terminal and as Markdown.
    pub fn reviewed(&self) -> (String, String) {
        // Markdown in a file leaves standard output to the summary.
        let summary = self.review(&["--markdown", "review.md"]).ok();
        (unwrapped(&summary), self.read("review.md"))
    }
}

/// A summary with its broken lines joined.
fn unwrapped(summary: &str) -> String {
    summary.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Fails unless both the summary and the Markdown have these.
#[track_caller]
pub fn assert_named((summary, markdown): &(String, String), expected: &[&str]) {
    for text in expected {
        assert!(summary.contains(text), "the summary lacks {text}:\n{summary}");
        assert!(markdown.contains(text), "the Markdown lacks {text}:\n{markdown}");
    }
}

#[test]
fn another_activation_is_found() {
    let repository = Repository::with(&[STEP, NORM]);
    repository.plant(STEP, "    .tanh = tanh(", "    .tanh = erf(");
    assert_named(
        &repository.reviewed(),
        &["gpt2_train_step_cuda_planned", "prims::tanh → prims::erf: h.0.mlp.gelu.tanh"],
    );
}

#[test]
fn an_executor_that_refuses_is_found_with_its_reason() {
    let repository = Repository::with(&[STEP]);
    let line = "bias=state.params.h.0.mlp.c_fc.bias) by cublaslt\n";
    let refused = "bias=state.params.h.0.mlp.c_fc.bias) by cuda\n    refused by cublaslt: \"needs rows of 16 bytes\"\n";
    repository.plant(STEP, line, refused);
    let expected = ["cublaslt refuses linear: needs rows of 16 bytes", "linear moved from cublaslt to cuda"];
    assert_named(&repository.reviewed(), &expected);
}

#[test]
fn a_lost_donation_is_found() {
    let repository = Repository::with(&[NORM]);
    let step = "# fulgurite trace 2\n# made by acquire, claim, plan_memory\n\
        trace step for cpu (state.w: f32[4] donated, state.m: f32[4] donated) arena 0 {\n  \
        m = add(state.w, state.m) by cpu\n  w = mul(state.w, 0.5) by cpu\n  return state.w = w, state.m = m\n  \
        memory {\n    w in state.w, m in state.m\n  }\n}\n";
    repository.write("step.trace", step);
    repository.commit("step");
    let lines = ("  m = add(state.w, state.m) by cpu\n", "  w = mul(state.w, 0.5) by cpu\n");
    let swapped = step.replace(&format!("{}{}", lines.0, lines.1), &format!("{}{}", lines.1, lines.0));
    repository.write("step.trace", &swapped.replace("w in state.w", "w at output"));
    let expected = ["lost for state.w: result 'state.w' is written before 'm' reads the input", "peak memory"];
    assert_named(&repository.reviewed(), &expected);
}

#[test]
fn a_split_fusion_is_found() {
    let repository = Repository::with(&[STEP]);
    repository.plant(
        STEP,
        "  region by fusion in h.0.mlp.gelu {\n    .mul = ",
        "  region by fusion in h.0.mlp.gelu {\n    yield .mul = ",
    );
    let text = repository.read(STEP);
    let begin = text.find("region by fusion in h.0.mlp.gelu {").unwrap();
    let line = text[begin..].find("    .tanh = ").unwrap() + begin;
    let before = text[..line].replacen("    .mul.4 = mul(.add, 0.79", "    yield .mul.4 = mul(.add, 0.79", 1);
    repository.write(STEP, &format!("{before}  }}\n  region by fusion in h.0.mlp.gelu {{\n{}", &text[line..]));
    let found = repository.reviewed();
    assert_named(
        &found,
        &["region h.0.mlp.gelu (9 lines) is split: 3 lines in h.0.mlp.gelu, 6 lines in h.0.mlp.gelu.mul"],
    );
    assert_named(&found, &["launches"]);
}

#[test]
fn a_kernel_that_moved_is_found() {
    let repository = Repository::with(&[HOST_STEP, NORM]);
    repository.plant(HOST_STEP, "dims=[1, 0])) by cpu", "dims=[1, 0])) by reference");
    let expected = "prims::matmul moved from cpu to reference: h.0.attn.c_attn.linear.matmul";
    assert_named(&repository.reviewed(), &[expected]);
}

#[test]
fn an_argument_that_is_new_has_its_own_name() {
    let repository = Repository::with(&[NORM]);
    repository.plant(NORM, "    rsqrt = rsqrt(add)\n", "    extra = mul(add, add)\n    rsqrt = rsqrt(extra)\n");
    assert_named(&repository.reviewed(), &["add → extra: rms_norm/rsqrt"]);
}

#[test]
fn json_has_findings_and_lines() {
    let repository = Repository::with(&[NORM]);
    repository.plant(NORM, "mul(sum, 0.125)", "mul(sum, 0.25)");
    let json = crate::json(&repository.review(&["--json", "-"]).ok());
    let program = &json["files"][0]["programs"][0];
    assert_eq!(json["files"][0]["path"], NORM);
    assert_eq!(program["findings"][0]["about"], "arguments");
    assert!(program["difference"]["lines"][0]["body"][0]["after"].as_str().unwrap().contains("0.25"), "{program}");
}

#[test]
fn nothing_changed_is_said() {
    let repository = Repository::with(&[NORM]);
    repository.write("other.txt", "x");
    repository.commit("second");
    assert!(repository.review(&["--exit-code"]).ok().contains("no program changed"));
}

#[test]
fn ignored_programs_are_no_change() {
    let repository = Repository::with(&[NORM]);
    repository.write(".gitignore", "*.snap.new\n/runs\n");
    repository.commit("second");
    repository.write("runs/first/traces/step.trace", &stored(NORM));
    repository.write("runs/first/step.snap", &stored(NORM));
    assert!(repository.review(&["HEAD", "--exit-code"]).ok().contains("no program changed"));
    repository.write("new.trace", &stored(NORM));
    let summary = repository.review(&[]).ok();
    assert!(summary.contains("new.trace") && !summary.contains("runs/"), "{summary}");
}

#[test]
fn the_base_is_head_the_merge_base_or_the_commit_before() {
    let repository = Repository::with(&[NORM]);
    repository.plant(NORM, "mul(sum, 0.125)", "mul(sum, 0.25)");
    assert!(repository.review(&[]).ok().starts_with("HEAD ("));
    assert_eq!(repository.review(&["--exit-code"]).code, 1);
    repository.commit("second");
    // On main the commit before it, and on a branch what it began from.
    assert!(repository.review(&[]).ok().starts_with("HEAD~1 ("));
    repository.git(&["checkout", "--quiet", "-b", "topic"]);
    repository.plant(NORM, "mul(sum, 0.25)", "mul(sum, 0.75)");
    repository.commit("third");
    let on_topic = repository.review(&[]).ok();
    assert!(on_topic.starts_with("merge base with main (") && on_topic.contains("0.25 → 0.75"), "{on_topic}");
    let peeled = repository.review(&["--to", "main^0"]).ok();
    assert!(peeled.starts_with("commit before main^0 ("), "{peeled}");
    let between = repository.review(&["main~1", "--to", "main"]).ok();
    assert!(between.starts_with("main~1 (") && between.contains("0.125 → 0.25"), "{between}");
}

#[test]
fn files_that_are_new_and_gone_are_named() {
    let repository = Repository::with(&[NORM, "tests/snapshots/gelu.snap"]);
    std::fs::remove_file(repository.path().join(NORM)).unwrap();
    repository.write("tests/snapshots/silu.snap", &stored("tests/snapshots/silu.snap"));
    let found = repository.reviewed();
    assert_named(&found, &["rms_norm", "gone", "silu", "new"]);
    assert!(!found.0.contains("gelu"), "{}", found.0);
}

#[test]
fn a_program_that_one_side_lacks_is_named() {
    let repository = Repository::with(&[NORM]);
    let program = |heading: &str, call: &str| {
        format!("== {heading}\n# fulgurite trace 2\ntrace f for cpu (x: f32[4]) {{\n  y = {call}(x)\n  return y\n}}\n")
    };
    let path = "tests/snapshots/file.snap";
    repository.write(path, &[program("first", "exp"), program("gone", "sin")].concat());
    repository.commit("second");
    repository.write(path, &[program("first", "log"), program("third", "cos")].concat());
    let found = repository.reviewed();
    assert_named(&found, &["third", "gone"]);
}

#[test]
fn a_corrupt_snapshot_is_named_with_its_error() {
    let repository = Repository::with(&[NORM]);
    repository.plant(NORM, "== forward, claimed\n", "== forward, claimed\nno such line\n");
    repository.plant(
        NORM,
        "rms_norm.sum: f32[4] = sum(.mul, dims=[1]) by cpu",
        "rms_norm.sum: f32[4] = no_such_call(.mul)",
    );
    assert_named(&repository.reviewed(), &["the text after cannot be read", "no_such_call"]);
}

#[test]
fn texts_that_are_no_programs_are_folded() {
    let repository = Repository::with(&["ops-dsl/tests/dsl/snapshots/prim.snap"]);
    repository.plant("ops-dsl/tests/dsl/snapshots/prim.snap", "pub mod exp", "pub mod exponential");
    assert_named(
        &repository.reviewed(),
        &["no program changed; 1 other text", "ops-dsl/tests/dsl/snapshots/prim.snap"],
    );
}

/// Markdown without its code: a run of backticks ends where as many come again.
fn outside_of_code(markdown: &str) -> String {
    let (mut outside, mut rest) = (String::new(), markdown);
    while let Some(at) = rest.find('`') {
        outside += &rest[..at];
        let fence = rest[at..].len() - rest[at..].trim_start_matches('`').len();
        let (mut end, code) = (at + fence, &rest[at + fence..]);
        let runs = code.match_indices('`').map(|(i, _)| i).filter(|i| !code[..*i].ends_with('`'));
        let length = |i: usize| code[i..].len() - code[i..].trim_start_matches('`').len();
        end += runs.into_iter().find(|i| length(*i) == fence).map_or(code.len(), |i| i + fence);
        rest = &rest[end..];
    }
    outside + rest
}

#[test]
fn markup_in_names_is_shown() {
    let repository = Repository::with(&[NORM]);
    let name = "<script>window.ran = true</script>`|@all";
    let path = "tests/snapshots/<img src=x onerror='window.ran = true'>.snap";
    let text = |call: &str| {
        format!(
            "# fulgurite trace 2\n# made by acquire\ntrace \"{name}\" for cpu (x: f32[4]) {{\n  \
            \"{name}.y\" = {call}(x)\n  return out = \"{name}.y\"\n}}\n"
        )
    };
    repository.write(path, &text("exp"));
    repository.commit("hostile");
    repository.write(path, &text("tanh"));
    let (summary, markdown) = repository.reviewed();
    assert!(summary.contains("prims::exp → prims::tanh: <script>"), "{summary}");
    let tags = ["<details>", "</details>", "<summary>", "</summary>", "<code>", "</code>"];
    let outside = tags.iter().fold(outside_of_code(&markdown), |text, tag| text.replace(tag, ""));
    assert!(!outside.contains(['<', '@']), "{outside}");
    assert!(markdown.contains("<script>"), "{markdown}");
}

#[test]
fn other_names_are_counted_and_not_told() {
    let repository = Repository::with(&[NORM, STEP]);
    let text = repository.read(NORM);
    let (begin, end) = (text.find("== forward, claimed").unwrap(), text.find("== backward, acquired").unwrap());
    // The results of two lines, and what reads them.
    let renamed = text[begin..end].replace("rms_norm.mul.1 =", "rms_norm.scaled =").replace("(.mul.1,", "(.scaled,");
    let renamed = renamed.replace("rms_norm.add =", "rms_norm.mul.1 =").replace("rsqrt(.add)", "rsqrt(.mul.1)");
    repository.write(NORM, &format!("{}{renamed}{}", &text[..begin], &text[end..]));
    let found = repository.reviewed();
    assert_named(&found, &["no program changed; 1 more in names, order or memory alone"]);
    assert!(found.0.contains("names alone rms_norm"), "{}", found.0);
    // Beside them, what else changed is seen.
    repository.plant(NORM, "rms_norm.rsqrt = rsqrt(.mul.1) by cpu", "rms_norm.rsqrt = sqrt(.mul.1) by cpu");
    let found = repository.reviewed();
    assert_named(&found, &["prims::rsqrt → prims::sqrt: rms_norm.rsqrt", "1 program of 1 file changed"]);
    assert!(found.1.contains("lines have other names alone"), "{}", found.1);
    assert!(!found.0.contains("added") && !found.0.contains("removed"), "{}", found.0);
}

#[test]
fn bad_input_is_refused() {
    let repository = Repository::with(&[NORM]);
    let complaint = repository.review(&["no-such-branch"]).fails(1);
    assert!(complaint.contains("'no-such-branch' is not a commit of this repository"), "{complaint}");
    let complaint = repository.review(&["HEAD", "--to", "--help-me"]);
    assert_eq!(complaint.code, 2);
    let complaint = repository.review(&[]).fails(1);
    assert!(complaint.contains("there is no commit before HEAD: it is the first commit"), "{complaint}");
    for name in ["step.trace", "step.snap.new", ".a.rs.pending-snap"] {
        let complaint = repository.review(&["HEAD", "--markdown", name]).fails(1);
        assert!(complaint.contains(&format!("{name}: is the name of a stored program")), "{complaint}");
    }
    for names in [["-", "-"], ["x", "./x"]] {
        let complaint = repository.review(&["HEAD", "--markdown", names[0], "--json", names[1]]).fails(1);
        assert!(complaint.contains("--markdown and --json both name "), "{complaint}");
    }
    assert_eq!(repository.review(&["--accept", "--exit-code"]).code, 2);
    assert_eq!(repository.review(&["--reject", "--exit-code"]).code, 2);
    let nowhere = tempfile::tempdir().unwrap();
    let complaint = run_in(nowhere.path(), &["review"]).fails(1);
    assert!(complaint.contains("git repository"), "{complaint}");
    let complaint = crate::run_with(repository.path(), &["review"], &[("PATH", "/nowhere")]).fails(1);
    assert!(complaint.contains("git: ") && complaint.contains("the program git"), "{complaint}");
}

#[test]
fn pending_snapshots_are_compared_accepted_and_rejected() {
    let gelu = "tests/snapshots/gelu.snap";
    let repository = Repository::with(&[NORM, gelu]);
    for path in [NORM, gelu] {
        let text = repository.read(path).replacen("---\n", "---\nassertion_line: 7\n", 1);
        repository.write(&format!("{path}.new"), &text.replacen(" = mul(", " = div(", 1));
    }
    repository.write("src/.a.rs.pending-snap", "{}\n");
    let summary = repository.review(&[]).ok();
    assert!(summary.contains("2 snapshots not accepted yet"), "{summary}");
    assert!(summary.contains("prims::mul → prims::div"), "{summary}");
    let before = repository.read(gelu);
    let complaint = repository.review(&["--accept", "no_such"]).fails(1);
    assert!(complaint.contains("no snapshot called 'no_such' waits"), "{complaint}");
    let ran = repository.review(&["--accept", "rms_norm"]);
    assert_eq!((ran.code, &*ran.out), (0, "accepted tests/snapshots/rms_norm.snap\n"));
    assert!(ran.err.contains("src/.a.rs.pending-snap"), "{}", ran.err);
    assert_eq!(repository.read(NORM), stored(NORM).replacen(" = mul(", " = div(", 1));
    assert!(!repository.path().join(format!("{NORM}.new")).exists());
    assert_eq!(repository.review(&["--reject"]).out, "rejected tests/snapshots/gelu.snap\n");
    assert_eq!(repository.read(gelu), before);
    assert!(repository.path().join("src/.a.rs.pending-snap").exists());
    assert_eq!(repository.review(&["--accept"]).out, "no snapshot waits to be accepted\n");
}
