// Runs the extension of VS Code with an editor and a client that replace the real ones. Prints what happened.
"use strict";

const Module = require("module");

const told = [];
let command = ["missing"];
let changed;
const vscode = {
  workspace: {
    getConfiguration: () => ({ get: () => command }),
    onDidChangeConfiguration: (listener) => (changed = listener),
  },
  window: { showWarningMessage: () => told.push(`warned of ${JSON.stringify(command)}`) },
};

// As vscode-languageclient 9: a client that is not running cannot be stopped.
class LanguageClient {
  constructor(_id, _name, server) {
    this.command = server.command;
  }
  async start() {
    told.push(`starts ${this.command}`);
    await new Promise((done) => setTimeout(done, 1));
    if (this.command === "missing") throw new Error("there is none");
    this.running = true;
    told.push(`runs ${this.command}`);
  }
  async stop() {
    if (!this.running) throw new Error("Client is not running and can't be stopped.");
    this.running = false;
    told.push(`stopped ${this.command}`);
  }
  isRunning() {
    return this.running === true;
  }
}

const load = Module._load;
Module._load = (name, ...rest) =>
  ({ vscode, "vscode-languageclient/node": { LanguageClient } })[name] ?? load(name, ...rest);

const extension = require(process.argv[2]);
const change = (value) => {
  command = value;
  changed({ affectsConfiguration: () => true });
};

const until = async (text) => {
  for (let turn = 0; turn < 10000 && !told.includes(text); turn++) await new Promise((done) => setTimeout(done, 1));
};

(async () => {
  await extension.activate({ subscriptions: [] });
  change(7);
  await until("warned of 7");
  // The second change comes while the first one starts.
  change(["one"]);
  await until("starts one");
  change(["two"]);
  await until("runs two");
  await extension.deactivate();
  console.log(told.join("\n"));
})();
