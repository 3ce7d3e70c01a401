//! The frame of a page, tables and links.

use fulgurite_plots::escape_text;

/// A page of the reference.
pub struct Frame<'a> {
    /// As text.
    pub title: &'a str,
    /// From the page to the folder of the index: empty or `../`.
    pub up: &'a str,
    /// As HTML.
    pub body: &'a str,
}

/// The page as HTML. Style and script are files beside the index.
pub fn frame(page: &Frame) -> String {
    let Frame { title, up, body } = page;
    let title = escape_text(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <link rel=\"stylesheet\" href=\"{up}reference.css\">\n</head>\n<body>\n\
         <header><nav aria-label=\"Reference\"><a href=\"{up}index.html\">All operators</a> \
         <a href=\"{up}missing.html\">Missing of PyTorch</a></nav></header>\n\
         <main>\n{body}</main>\n</body>\n</html>\n"
    )
}

/// The name of an operator's page. Colons are no part of file names everywhere.
pub fn file_name(operator: &str) -> String {
    format!("{}.html", operator.replace("::", "--"))
}

/// A link to an operator's page in the folder `folder`.
pub fn link(operator: &str, folder: &str) -> String {
    format!("<a href=\"{folder}{}\">{}</a>", escape_text(&file_name(operator)), escape_text(operator))
}

/// A table whose cells are HTML; it is scrolled where it is wider than the page, by the keyboard too.
pub fn table(label: &str, titles: &[&str], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let head: String = titles.iter().map(|title| format!("<th scope=\"col\">{title}</th>")).collect();
    let cells = |row: &Vec<String>| {
        let cells: String = row.iter().map(|cell| format!("<td>{cell}</td>")).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let rows: String = rows.iter().map(cells).collect();
    format!(
        "<div class=\"wide\" role=\"region\" aria-label=\"{}\" tabindex=\"0\"><table><thead><tr>{head}</tr></thead>\n\
         <tbody>{rows}</tbody></table></div>\n",
        escape_text(label)
    )
}
