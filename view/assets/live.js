"use strict";
// The server sends the version of its page with each event, and again when a lost connection is back.
new EventSource("/changes").onmessage = (event) => {
    if (event.data !== "{{VERSION}}") location.reload();
};
