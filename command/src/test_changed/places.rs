//! Files whose tests are elsewhere than in their crate: pages, stored results, styles.

use super::selection::Selection;
use super::workspace::Workspace;

/// A place and its tests.
struct Place {
    begins: &'static str,
    ends: &'static str,
    /// The tests: package, target, parts of names. Of several packages with such a target the first one counts that the
    /// workspace has.
    tests: &'static [(&'static [&'static str], Which, &'static [&'static str])],
    why: &'static str,
}

/// Which target of a package.
#[derive(Clone, Copy)]
enum Which {
    All,
    Doc,
    Test(&'static str),
}

const SUITE: &[&str] = &["fulgurite-tests"];
const COMMAND: &[&str] = &["fulgurite-command", "fulgurite"];
const FACADE: &[&str] = &["fulgurite"];
const PROSE: (&[&str], Which, &[&str]) = (SUITE, Which::Test("sources"), &["prose::", "tables::"]);
const GOLDEN: (&[&str], Which, &[&str]) = (SUITE, Which::Test("generated"), &["golden"]);
const SOURCES: (&[&str], Which, &[&str]) = (SUITE, Which::Test("sources"), &[]);

/// The places, the innermost first.
const PLACES: [Place; 19] = [
    page("README.md"),
    page("docs/src/"),
    Place { begins: "", ends: ".md", tests: &[PROSE], why: "prose" },
    Place {
        begins: "editors/",
        ends: "",
        tests: &[(COMMAND, Which::Test("command"), &["editor::"])],
        why: "the grammar of editors",
    },
    Place {
        begins: "examples/notebooks/",
        ends: "",
        tests: &[(COMMAND, Which::Test("command"), &["notebook::"])],
        why: "a notebook",
    },
    Place {
        begins: "view/assets/",
        ends: "",
        tests: &[
            (&["fulgurite-view"], Which::All, &[]),
            (COMMAND, Which::Test("command"), &["view", "time::", "report::", "axe::", "profile::", "notebook::"]),
        ],
        why: "a script or style of pages",
    },
    Place { begins: "tests/golden/operators", ends: "", tests: &[GOLDEN], why: "PyTorch's results" },
    Place { begins: "tests/golden/liger.py", ends: "", tests: &[GOLDEN], why: "what makes PyTorch's results" },
    Place { begins: "tests/golden/test_operators.py", ends: "", tests: &[GOLDEN], why: "what makes PyTorch's results" },
    Place {
        begins: "tests/src/wrong/",
        ends: "",
        tests: &[(SUITE, Which::Test("wrong_operators"), &[])],
        why: "declarations that are wrong on purpose",
    },
    Place { begins: "tests/opinfo/", ends: "", tests: &[SOURCES], why: "a script that people run" },
    Place { begins: "tests/device.sh", ends: "", tests: &[SOURCES], why: "a script that people run" },
    Place { begins: ".github/", ends: "", tests: &[SOURCES], why: "no code of a crate" },
    Place { begins: ".vscode/", ends: "", tests: &[SOURCES], why: "no code of a crate" },
    Place { begins: "LICENSE", ends: "", tests: &[SOURCES], why: "no code of a crate" },
    Place { begins: ".editorconfig", ends: "", tests: &[SOURCES], why: "no code of a crate" },
    Place { begins: ".gitattributes", ends: "", tests: &[SOURCES], why: "no code of a crate" },
    Place { begins: ".gitignore", ends: "", tests: &[SOURCES], why: "no code of a crate" },
    Place { begins: "benches/", ends: ".py", tests: &[SOURCES], why: "a script that people run" },
];

/// A page whose blocks are tests.
const fn page(begins: &'static str) -> Place {
    Place {
        begins,
        ends: ".md",
        tests: &[
            PROSE,
            (&["fulgurite-book"], Which::All, &[]),
            (FACADE, Which::Doc, &[]),
            (COMMAND, Which::Test("command"), &["book::"]),
        ],
        why: "a page with examples",
    }
}

/// The tests of a file by its place, with the reason; none where the place says nothing, or the workspace has none of
/// the packages.
pub fn tests_of(path: &str, workspace: &Workspace) -> Option<(Vec<Selection>, String)> {
    let place = PLACES.iter().find(|place| path.starts_with(place.begins) && path.ends_with(place.ends))?;
    let selections: Vec<Selection> = place.tests.iter().filter_map(|of| selection(of, workspace)).collect();
    (!selections.is_empty()).then(|| (selections, place.why.to_owned()))
}

fn selection(
    (packages, which, filters): &(&'static [&'static str], Which, &'static [&'static str]),
    workspace: &Workspace,
) -> Option<Selection> {
    let mut known = packages.iter().filter_map(|name| workspace.package(name));
    match which {
        Which::All => known.next().map(|package| Selection::package(&package.name)),
        Which::Doc => known.next().map(|package| Selection {
            package: package.name.clone(),
            target: super::selection::Target::Doc,
            filters: filters.iter().map(|filter| (*filter).to_owned()).collect(),
        }),
        Which::Test(name) => {
            let package = known.find(|package| package.has_test(name))?;
            Some(Selection::test(&package.name, name, filters))
        }
    }
}
