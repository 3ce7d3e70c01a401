//! Reading what the compilers print, to show the lines that it is about.

use std::fmt;

use super::headers::Included;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Nothing was compiled.
    Error,
    /// Something was compiled, but perhaps not what was meant.
    Warning,
}

/// One message of a compiler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// The file it is about: the source's name, or `ptx` for the intermediate code.
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The text of that line, if it is known.
    pub text: Option<String>,
    /// The column that the compiler points at, counted from 0.
    pub column: Option<usize>,
    /// What the compiler says.
    pub message: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{severity}: {} ({}:{})", self.message, self.file, self.line)?;
        let Some(text) = &self.text else { return Ok(()) };
        write!(f, "\n{:>5} | {text}", self.line)?;
        self.column.map_or(Ok(()), |column| write!(f, "\n      | {:column$}^", ""))
    }
}

/// The messages of NVRTC's log about the source `name` and the headers that it includes:
///
/// ```text
/// rms_norm.cu(12): error: identifier "x" is undefined
///     out[i] = x;
///              ^
/// ```
///
/// A message may go on over several lines until the quoted line, which has four blanks before it that the source lacks.
pub(super) fn parse(log: &str, name: &str, source: &str, headers: &[Included]) -> Vec<Diagnostic> {
    let lines: Vec<&str> = log.lines().collect();
    let heads: Vec<usize> = (0..lines.len()).filter(|&i| head(lines[i]).is_some()).collect();
    let mut found = Vec::new();
    for (n, &at) in heads.iter().enumerate() {
        let Some((file, line, severity, message)) = head(lines[at]) else { continue };
        let end = heads.get(n + 1).copied().unwrap_or(lines.len());
        let text = match headers.iter().find(|header| header.name == file) {
            Some(header) => header.text.lines().nth(line.wrapping_sub(1)),
            None => line_of(source, name, file, line),
        };
        // The line under the quoted one holds nothing but the mark.
        let mark = lines[at..end].iter().position(|line| line.trim() == "^").filter(|&mark| mark >= 2);
        let quoted = mark.map(|mark| lines[at + mark - 1]);
        let blanks = |line: &str| line.len() - line.trim_start().len();
        let column = mark.zip(quoted).zip(text).and_then(|((mark, quoted), text)| {
            let shift = blanks(quoted).checked_sub(blanks(text))?;
            blanks(lines[at + mark]).checked_sub(shift)
        });
        let mut message = message.to_owned();
        let more = mark.map_or(at + 1..at + 1, |mark| at + 1..at + mark - 1);
        for line in &lines[more] {
            message.push(' ');
            message.push_str(line.trim());
        }
        let text = text.map(str::to_owned);
        found.push(Diagnostic { severity, file: file.to_owned(), line, text, column, message });
    }
    found
}

/// Line `line` of `file`, as the source `name` counts: from 1, and from what its directives `#line 1 "FILE"` say on.
fn line_of<'a>(source: &'a str, name: &'a str, file: &str, line: usize) -> Option<&'a str> {
    let directive = |text: &'a str| text.trim_start().strip_prefix("#line ");
    let named = |directive: &'a str| directive.split_once('"').and_then(|(_, name)| name.strip_suffix('"'));
    // Text before the first directive is the source's own, unless one says where the file begins.
    let begins = source.lines().filter_map(directive).any(|directive| named(directive.trim()) == Some(file));
    let (mut here, mut number) = (if begins { "" } else { name }, 1);
    for text in source.lines() {
        if let Some(directive) = directive(text).map(str::trim) {
            number = directive.split(' ').next().and_then(|next| next.parse().ok()).unwrap_or(number + 1);
            here = named(directive).unwrap_or(here);
            continue;
        }
        if number == line && here == file {
            return Some(text);
        }
        number += 1;
    }
    None
}

/// `FILE(LINE): error: MESSAGE`, `FILE(LINE): warning #177-D: MESSAGE`.
fn head(line: &str) -> Option<(&str, usize, Severity, &str)> {
    let (place, rest) = line.split_once("): ")?;
    let (file, number) = place.rsplit_once('(')?;
    let (kind, message) = rest.split_once(": ")?;
    let severity = match kind.split([' ', '#']).next()? {
        "error" | "catastrophic" => Severity::Error,
        "warning" => Severity::Warning,
        _ => return None,
    };
    Some((file, number.parse().ok()?, severity, message))
}

/// What the assembler complains of: line of the intermediate code, message. `None` if it does not complain.
///
/// ```text
/// ptxas application ptx input, line 27; error   : Not a name of any known instruction: 'foo'
/// ```
pub(super) fn ptx_lines(log: &str) -> Option<Vec<(usize, String)>> {
    let lines: Vec<(usize, String)> = log
        .lines()
        .filter_map(|line| {
            let (_, rest) = line.strip_prefix("ptxas ")?.split_once(", line ")?;
            let (number, rest) = rest.split_once(';')?;
            let (kind, message) = rest.split_once(':')?;
            (kind.trim() == "error").then_some((number.parse().ok()?, message.trim().to_owned()))
        })
        .collect();
    (!lines.is_empty()).then_some(lines)
}

/// The assembler's complaints with the lines of the intermediate code that they are about.
pub(super) fn of_ptx(complaints: Vec<(usize, String)>, ptx: &str) -> Vec<Diagnostic> {
    let of_line = |(line, message): (usize, String)| {
        let text = ptx.lines().nth(line.wrapping_sub(1)).map(|text| text.replace('\t', " "));
        Diagnostic { severity: Severity::Error, file: "ptx".into(), line, text, column: None, message }
    };
    complaints.into_iter().map(of_line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "extern \"C\" __global__ void k(float*o){\n  o[0]=undefined_thing;\n  int x=3\n}\n";
    const LOG: &str = r#"k.cu(2): error: identifier "undefined_thing" is undefined
    o[0]=undefined_thing;
         ^

k.cu(4): error: expected a ";"
  }
  ^

k.cu(3): warning #177-D: variable "x" was declared
          but never referenced
    int x=3
        ^

Remark: The warnings can be suppressed with "-diag-suppress <warning-number>"

2 errors detected in the compilation of "k.cu".
"#;

    #[test]
    fn messages_carry_the_source_line_and_the_column() {
        let found = parse(LOG, "k.cu", SOURCE, &[]);
        assert_eq!(found.len(), 3);
        assert_eq!((found[0].line, found[0].column), (2, Some(7)));
        assert_eq!(found[0].text.as_deref(), Some("  o[0]=undefined_thing;"));
        assert_eq!(found[2].message, r#"variable "x" was declared but never referenced"#);
        let shown = found[0].to_string();
        let expected = "error: identifier \"undefined_thing\" is undefined (k.cu:2)\n    2 |   \
                        o[0]=undefined_thing;\n      |        ^";
        assert_eq!(shown, expected);
    }

    #[test]
    fn lines_are_counted_as_the_source_says() {
        let source = format!("// header\n#line 1 \"shared.cuh\"\n// shared\n// 2\n#line 1 \"k.cu\"\n{SOURCE}");
        assert_eq!(parse(LOG, "k.cu", &source, &[]), parse(LOG, "k.cu", SOURCE, &[]));
        let shared = parse("shared.cuh(2): error: expected\n", "k.cu", &source, &[]);
        assert_eq!(shared[0].text.as_deref(), Some("// 2"));
        assert_eq!(parse("other.cuh(2): error: expected\n", "k.cu", &source, &[])[0].text, None);
        assert_eq!(parse("k.cu(99): error: expected\n", "k.cu", &source, &[])[0].text, None);
        // What all kernels start with is longer than the file, and is none of its lines.
        let source = format!(
            "{}#line 1 \"k.cu\"\n#line 1 \"shared.cuh\"\n// shared\n#line 1 \"k.cu\"\n{SOURCE}",
            "// header\n".repeat(99)
        );
        assert_eq!(parse(LOG, "k.cu", &source, &[]), parse(LOG, "k.cu", SOURCE, &[]));
        assert_eq!(parse("k.cu(98): error: expected\n", "k.cu", &source, &[])[0].text, None);
    }

    #[test]
    fn lines_of_headers_are_those_of_the_header() {
        let header = Included { name: "fulgurite/x.cuh", text: "// first\n  second\n".into() };
        let log = "fulgurite/x.cuh(2): error: expected\n    second\n    ^\n";
        let found = parse(log, "k.cu", SOURCE, std::slice::from_ref(&header));
        assert_eq!((found[0].file.as_str(), found[0].text.as_deref()), ("fulgurite/x.cuh", Some("  second")));
        assert_eq!(parse("fulgurite/x.cuh(3): error: e\n", "k.cu", SOURCE, &[header])[0].text, None);
    }

    #[test]
    fn the_assemblers_complaints_name_lines_of_the_intermediate_code() {
        let log = "ptxas application ptx input, line 2; error   : Unknown modifier '.bar'\nptxas fatal   : aborted\n";
        let complaints = ptx_lines(log).unwrap();
        let shown = of_ptx(complaints, "first\n\tfoo.bar %r1;\n");
        assert_eq!(shown[0].to_string(), "error: Unknown modifier '.bar' (ptx:2)\n    2 |  foo.bar %r1;");
        assert!(ptx_lines("nothing").is_none());
    }
}
