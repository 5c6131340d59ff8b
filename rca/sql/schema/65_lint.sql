-- Settings outside of what is safe, whether or not they made this incident; rules in lint.toml.
CREATE TABLE lint_finding (
    -- Id of the rule, for example 'batch_window'.
    rule VARCHAR NOT NULL,
    -- 'warning' (known to hurt) or 'notice' (worth a look).
    severity VARCHAR NOT NULL,
    -- What is configured, as in config or change.
    subject VARCHAR NOT NULL,
    -- Name of the setting, as in config or change.
    key VARCHAR NOT NULL,
    -- Its value as text.
    value VARCHAR NOT NULL,
    -- What would be safe, in words.
    expected VARCHAR NOT NULL,
    -- One sentence for people.
    statement VARCHAR NOT NULL,
    -- Id of the change that set it; NULL when it comes from the configuration.
    change_id VARCHAR,
    -- Causes that such a value is known to bring about; empty for a notice.
    causes VARCHAR[] NOT NULL,
    -- The source it was read in.
    source_id INTEGER NOT NULL
);
