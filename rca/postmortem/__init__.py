"""The postmortem as a document: Markdown, one HTML file, charts."""
