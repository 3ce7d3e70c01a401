//! What processes leave in a journal, and what the next ones make of it. Each journal that is opened is a process.

use super::*;

fn open(folder: &Path) -> Journal {
    Journal::open(folder, Duration::ZERO).unwrap().unwrap()
}

/// A process that ends while it compiles or runs a candidate.
fn ends(folder: &Path, record: &str, candidate: &str, what: What) {
    open(folder).begin(record, "gelu(..)", candidate, what).unwrap();
}

fn content(folder: &Path) -> String {
    fs::read_to_string(folder.join(name())).unwrap()
}

#[test]
fn what_was_begun_and_not_ended_is_blamed() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("below");
    let journal = open(&folder);
    let fast = journal.begin("a", "gelu(..)", "fast", What::Running).unwrap();
    assert!(content(&folder).contains("\"what\":\"running\""), "{}", content(&folder));
    journal.end(fast).unwrap();
    assert_eq!(content(&folder), "");
    journal.begin("a", "gelu(..)", "broken", What::Compiling).unwrap();
    // The process ends here.
    drop(journal);
    let journal = open(&folder);
    assert_eq!(journal.blame("a", "broken").unwrap().to_string(), "ended the process that compiled it");
    assert!(
        journal.blame("a", "fast").is_none()
            && journal.blame("b", "broken").is_none()
            && journal.blames("a")
            && !journal.blames("b")
    );
    // Others are measured, and another one ends the process.
    let fast = journal.begin("a", "gelu(..)", "fast", What::Running).unwrap();
    journal.end(fast).unwrap();
    journal.begin("b", "softmax(..)", "worse", What::Running).unwrap();
    drop(journal);
    let journal = open(&folder);
    assert!(journal.blame("a", "broken").is_some());
    assert_eq!(journal.blame("b", "worse").unwrap().to_string(), "ended the process that ran it");
    assert!(Journal::left(&folder).is_empty(), "a process measures");
    // A record that was written says it from then on.
    journal.forget("a").unwrap();
    assert!(journal.blame("a", "broken").is_none());
    drop(journal);
    let left = Journal::left(&folder);
    assert!(left.len() == 1 && left[0].0 == "softmax(..)" && left[0].1 == "worse", "{left:?}");
    assert!(Journal::left(home.path()).is_empty(), "there is no journal");
}

#[test]
fn one_line_is_skipped_once_and_two_lines_for_good() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    ends(folder, "a", "slow", What::Running);
    // The next process skips it.
    let journal = open(folder);
    let blame = journal.blame("a", "slow").unwrap();
    assert!(!blame.is_for_good() && !blame.is_tried_again());
    journal.skip("a", "gelu(..)", "slow").unwrap();
    drop(journal);
    // The one after that tries it. It may end without an end of the process.
    let journal = open(folder);
    assert!(journal.blame("a", "slow").unwrap().is_tried_again());
    let number = journal.begin("a", "gelu(..)", "slow", What::Running).unwrap();
    journal.end(number).unwrap();
    drop(journal);
    assert!(Journal::left(folder)[0].2.is_tried_again());
    // A second line is for good, and no process more is asked to skip it.
    ends(folder, "a", "slow", What::Running);
    let blame = open(folder).blame("a", "slow").unwrap();
    assert!(blame.is_for_good() && !blame.is_tried_again());
    assert_eq!(blame.to_string(), "ended the process that ran it, twice");
    assert_eq!(Journal::left(folder), [("gelu(..)".to_owned(), "slow".to_owned(), blame)], "once");
}

#[test]
fn a_fault_of_the_device_is_blamed_for_good_while_the_process_goes_on() {
    let home = tempfile::tempdir().unwrap();
    let journal = open(home.path());
    let broken = journal.begin("a", "gelu(..)", "broken", What::Running).unwrap();
    journal.fault(broken).unwrap();
    let fast = journal.begin("a", "gelu(..)", "fast", What::Running).unwrap();
    journal.end(fast).unwrap();
    drop(journal);
    let journal = open(home.path());
    let blame = journal.blame("a", "broken").unwrap();
    assert!(blame.is_for_good() && blame.to_string() == "ended the work of the device", "{blame}");
    assert!(journal.blame("a", "fast").is_none());
}

#[test]
fn who_is_compiled_beside_a_candidate_that_runs_has_a_line_of_its_own() {
    let home = tempfile::tempdir().unwrap();
    let journal = open(home.path());
    let running = journal.begin("a", "gelu(..)", "runs", What::Running).unwrap();
    let compiling = journal.begin("b", "softmax(..)", "compiles", What::Compiling).unwrap();
    journal.end(running).unwrap();
    journal.begin("a", "gelu(..)", "next", What::Running).unwrap();
    journal.end(compiling).unwrap();
    // Only a candidate that runs is blamed.
    drop(journal);
    let left = Journal::left(home.path());
    assert!(left.len() == 1 && left[0].1 == "next", "{left:?}");
    // What is open stays where other lines are taken away or added.
    let journal = open(home.path());
    journal.begin("c", "tanh(..)", "open", What::Compiling).unwrap();
    journal.forget("a").unwrap();
    journal.skip("d", "relu(..)", "other").unwrap();
    drop(journal);
    assert_eq!(open(home.path()).blame("c", "open").unwrap().to_string(), "ended the process that compiled it");
}

#[test]
fn one_process_has_it_at_a_time() {
    let home = tempfile::tempdir().unwrap();
    let first = open(home.path());
    assert!(Journal::open(home.path(), Duration::ZERO).unwrap().is_none());
    drop(first);
    assert!(Journal::open(home.path(), Duration::ZERO).unwrap().is_some());
}

#[test]
fn a_line_that_is_cut_off_is_dropped() {
    let home = tempfile::tempdir().unwrap();
    ends(home.path(), "a", "broken", What::Running);
    ends(home.path(), "b", "worse", What::Running);
    let path = home.path().join(name());
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 9]).unwrap();
    let journal = open(home.path());
    assert!(journal.blame("a", "broken").is_some() && journal.blame("b", "worse").is_none());
    // What follows is on a line of its own.
    journal.begin("c", "tanh(..)", "third", What::Running).unwrap();
    drop(journal);
    assert!(open(home.path()).blame("c", "third").is_some());
    fs::write(&path, b"\xff\xfe no lines").unwrap();
    assert_eq!(open(home.path()).state().lines, []);
}

#[test]
fn the_oldest_lines_go() {
    let home = tempfile::tempdir().unwrap();
    let journal = open(home.path());
    for record in 0..MOST_LINES + 5 {
        let number = journal.begin(&record.to_string(), "gelu(..)", "broken", What::Running).unwrap();
        journal.fault(number).unwrap();
    }
    drop(journal);
    let journal = open(home.path());
    assert_eq!(journal.state().lines.len(), MOST_LINES);
    assert!(journal.blame(&(MOST_LINES + 4).to_string(), "broken").is_some() && journal.blame("4", "broken").is_none());
}

#[cfg(unix)]
#[test]
fn another_file_is_put_in_the_place_of_the_one_before() {
    let home = tempfile::tempdir().unwrap();
    ends(home.path(), "a", "broken", What::Running);
    drop(open(home.path()));
    let before = content(home.path());
    drop(open(home.path()));
    assert_eq!(content(home.path()), before);
    // A handle of the file that was there reads what was in it.
    let handle = File::open(home.path().join(name())).unwrap();
    open(home.path()).forget("a").unwrap();
    assert_eq!(content(home.path()), "");
    assert_eq!(io::read_to_string(handle).unwrap(), before);
    let left: Vec<_> = fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[cfg(unix)]
#[test]
fn a_lock_that_may_only_be_read_is_held() {
    use std::os::unix::fs::PermissionsExt;
    let home = tempfile::tempdir().unwrap();
    // As another user left it.
    let path = home.path().join(LOCK);
    fs::write(&path, "").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    // What `lock` has where it may not write.
    let other = File::open(&path).unwrap();
    other.try_lock().unwrap();
    assert!(Journal::open(home.path(), Duration::ZERO).unwrap().is_none());
    drop(other);
    // The lines are in a file of this user's own, whatever others have.
    fs::write(home.path().join("measuring-4294967295.log"), "of another user").unwrap();
    let journal = open(home.path());
    journal.begin("a", "gelu(..)", "broken", What::Running).unwrap();
    drop(journal);
    assert!(content(home.path()).contains("broken"));
    assert_eq!(Journal::left(home.path()).len(), 1);
    assert_eq!(fs::read_to_string(home.path().join("measuring-4294967295.log")).unwrap(), "of another user");
}

/// What another user may put in a shared cache before a process measures.
#[cfg(unix)]
#[test]
fn what_is_planted_is_neither_followed_nor_waited_for() {
    use std::os::unix::fs::symlink;
    let home = tempfile::tempdir().unwrap();
    let (victim, copy) = (home.path().join("victim"), home.path().join("copy"));
    fs::write(&victim, "precious").unwrap();
    fs::write(&copy, "").unwrap();
    let pipe = |path: PathBuf| assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    let partial = name().replace(".log", ".partial");
    type Plant<'a> = &'a dyn Fn(&Path);
    let links: Plant = &|folder| {
        // Also the name that the next file had before it was whole.
        [name(), partial.clone()].iter().for_each(|name| symlink(&victim, folder.join(name)).unwrap());
    };
    let pipes: Plant = &|folder| [name(), partial.clone()].iter().for_each(|name| pipe(folder.join(name)));
    // An empty file of this user's under a second name: lines that are appended would be in both.
    let second_name: Plant = &|folder| fs::hard_link(&copy, folder.join(name())).unwrap();
    for (which, plant) in [("links", links), ("pipes", pipes), ("a second name", second_name)] {
        let folder = home.path().join(which);
        fs::create_dir(&folder).unwrap();
        plant(&folder);
        let (done, finished) = std::sync::mpsc::channel();
        let in_folder = folder.clone();
        std::thread::spawn(move || {
            assert!(Journal::left(&in_folder).is_empty());
            let journal = open(&in_folder);
            journal.begin("a", "gelu(..)", "broken", What::Running).unwrap();
            journal.skip("b", "gelu(..)", "slow").unwrap();
            done.send(()).unwrap();
        });
        finished.recv_timeout(Duration::from_secs(20)).unwrap_or_else(|_| panic!("{which}: hangs or fails"));
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious", "{which}");
        assert_eq!(fs::read_to_string(&copy).unwrap(), "", "{which}");
        assert!(content(&folder).contains("broken"), "{which}: the journal takes its place");
    }
    // A lock that is none is an error, and the call is measured another time.
    let folder = home.path().join("lock");
    fs::create_dir(&folder).unwrap();
    for plant in [&|path: &Path| symlink(&victim, path).unwrap(), &|path: &Path| pipe(path.to_owned())] as [Plant; 2] {
        plant(&folder.join(LOCK));
        let error = Journal::open(&folder, Duration::ZERO).unwrap_err().to_string();
        assert!(error.contains("is not opened") && Journal::left(&folder).is_empty(), "{error}");
        fs::remove_file(folder.join(LOCK)).unwrap();
    }
}
