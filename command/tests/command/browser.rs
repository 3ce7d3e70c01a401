//! A browser without a window, driven through its DevTools protocol: JSON on two pipes, each message ended by a zero.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// What ends when two frames were drawn.
const FRAMES: &str = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))";

/// The protocol's code of an error of the browser, as that the page navigated while a call ran.
const SERVER_ERROR: i64 = -32000;

/// A running Chromium with one page.
pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: String,
    last: u64,
    /// The documents that are loaded, by the names of their loaders.
    loaded: Vec<Value>,
    /// How many of them the test has seen.
    seen: usize,
    /// Errors of the page's scripts.
    errors: Vec<String>,
    _profile: tempfile::TempDir,
}

/// `FULGURITE_CHROMIUM`, or the first Chromium of the path.
fn chromium() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("FULGURITE_CHROMIUM") {
        return Some(path.into());
    }
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&folders).collect();
    names.iter().find_map(|name| folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file()))
}

impl Browser {
    /// Starts a browser; `None`, with the reason printed, if this machine has none.
    pub fn start() -> Option<Browser> {
        let Some(chromium) = chromium() else {
            eprintln!("skipped: no Chromium in PATH; FULGURITE_CHROMIUM names one");
            return None;
        };
        let profile = tempfile::tempdir().unwrap();
        // The pipes of the protocol are the descriptors 3 and 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>/dev/null"])
            .arg(chromium)
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
            .args(["--remote-debugging-pipe", "--window-size=1280,900"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let (session, loaded, errors) = (String::new(), Vec::new(), Vec::new());
        let mut browser = Browser { child, to, from, session, last: 0, loaded, seen: 0, errors, _profile: profile };
        let targets = browser.call("Target.getTargets", json!({}));
        let pages = targets["targetInfos"].as_array().unwrap();
        let id = pages.iter().find(|target| target["type"] == "page").unwrap()["targetId"].clone();
        let attached = browser.call("Target.attachToTarget", json!({"targetId": id, "flatten": true}));
        browser.session = attached["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            browser.call(domain, json!({}));
        }
        browser.call("Page.setLifecycleEventsEnabled", json!({"enabled": true}));
        Some(browser)
    }

    /// Calls a method of the protocol.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        let answer = self.answer(method, parameters);
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// The answer to a call, which may be an error.
    fn answer(&mut self, method: &str, parameters: Value) -> Value {
        self.last += 1;
        let mut message = json!({"id": self.last, "method": method, "params": parameters});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let answer = self.next();
            if answer["id"] == self.last {
                return answer;
            }
        }
    }

    fn next(&mut self) -> Value {
        let mut bytes = Vec::new();
        self.from.read_until(0, &mut bytes).unwrap();
        assert_eq!(bytes.pop(), Some(0), "the browser ended");
        let message: Value = serde_json::from_slice(&bytes).unwrap();
        let error = match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Log.entryAdded") => message["params"]["entry"]["level"] == "error",
            _ => false,
        };
        if error {
            self.errors.push(message["params"].to_string());
        }
        if message["method"] == "Page.lifecycleEvent" && message["params"]["name"] == "load" {
            self.loaded.push(message["params"]["loaderId"].clone());
        }
        message
    }

    /// Opens a file, and waits until its scripts have run. It waits for this document's own event: the empty page that
    /// the browser starts with may report its own only now.
    pub fn open(&mut self, path: &Path) {
        self.visit(&format!("file://{}", path.display()));
    }

    /// As [`open`](Browser::open), of an address.
    pub fn visit(&mut self, address: &str) {
        let opened = self.call("Page.navigate", json!({"url": address}));
        let loader = &opened["loaderId"];
        assert!(loader.is_string(), "{opened}");
        while !self.loaded.contains(loader) {
            self.next();
        }
        self.seen = self.loaded.len();
        // What is in sight has no text for a reader before it is drawn.
        self.eval(FRAMES);
    }

    /// Waits until the page is loaded again by itself.
    pub fn reloaded(&mut self) -> bool {
        let before = self.loaded.len();
        while self.loaded.len() == before {
            self.next();
        }
        true
    }

    /// The value of an expression in the page.
    pub fn eval(&mut self, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let result = self.call("Runtime.evaluate", parameters);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// The text of the first element that a selector finds, as a reader sees it.
    pub fn text(&mut self, selector: &str) -> String {
        let text = self.eval(&format!("(document.querySelector({}) || {{}}).innerText || ''", json!(selector)));
        text.as_str().unwrap().to_owned()
    }

    /// Clicks, at its place on the screen, the first element that a selector finds and that has `text` in it.
    pub fn click(&mut self, selector: &str, text: &str) {
        self.press_at(selector, text);
        self.enter("Runtime.evaluate", json!({"expression": FRAMES, "awaitPromise": true}));
    }

    /// Calls a method during which a click or a key on a link may replace the document: the browser may then answer
    /// that the page has navigated. `wait_for_another_document` waits for the next one.
    fn enter(&mut self, method: &str, parameters: Value) {
        let answer = self.answer(method, parameters);
        let navigated = answer["error"]["code"] == SERVER_ERROR;
        assert!(answer["error"].is_null() || navigated, "{method}: {answer}");
    }

    /// Waits for a document that was loaded after the last one that the test has opened.
    pub fn wait_for_another_document(&mut self) {
        while self.loaded.len() == self.seen {
            self.next();
        }
        self.seen = self.loaded.len();
        self.eval(FRAMES);
    }

    fn press_at(&mut self, selector: &str, text: &str) {
        // Where it is once it has come into sight, and what that brings with it is drawn.
        let place = self.eval(&format!(
            "(async () => {{ const find = () => [...document.querySelectorAll({})].find((of) => \
             of.textContent.includes({})); \
             if (!find()) return null; find().scrollIntoView({{block: 'center', inline: 'start'}}); \
             await {FRAMES}; const box = find().getClientRects()[0]; \
             return [box.x + Math.min(box.width / 2, 20), box.y + box.height / 2]; }})()",
            json!(selector),
            json!(text)
        ));
        assert!(place.is_array(), "nothing to click: {selector} with '{text}'");
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({"type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1});
            self.enter("Input.dispatchMouseEvent", event);
        }
    }

    /// Presses a key: `ArrowDown`, `/`.
    pub fn press(&mut self, key: &str) {
        let text = if key.chars().count() == 1 { key } else { "" };
        let codes = [
            ("Enter", 13),
            ("End", 35),
            ("Home", 36),
            ("ArrowLeft", 37),
            ("ArrowUp", 38),
            ("ArrowRight", 39),
            ("ArrowDown", 40),
        ];
        let code = codes.iter().find(|(name, _)| *name == key).map_or(0, |(_, code)| *code);
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({"type": kind, "key": key, "windowsVirtualKeyCode": code});
            if kind == "keyDown" && !text.is_empty() {
                event["text"] = json!(text);
            }
            self.enter("Input.dispatchKeyEvent", event);
        }
    }

    /// Types a text into what has the focus.
    pub fn write(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text}));
    }

    /// Sets the size of the screen, in CSS pixels.
    pub fn resize(&mut self, width: u32, height: u32) {
        let screen = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", screen);
    }

    /// Fails if a script of a page failed.
    pub fn check(&mut self) {
        self.eval("0");
        assert!(self.errors.is_empty(), "{:#?}", self.errors);
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
