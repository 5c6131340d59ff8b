-- Log lines.
CREATE TABLE log (
    -- The source it comes from.
    source_id INTEGER NOT NULL,
    -- Time, ns since the Unix epoch; NULL when the line has none.
    ts_ns BIGINT,
    -- Service or logger; NULL when the line does not say.
    service VARCHAR,
    -- 'debug', 'info', 'warning', 'error' or 'critical'; NULL when the line does not say.
    level VARCHAR,
    -- The message with numbers, ids and paths replaced by '<*>'.
    template VARCHAR NOT NULL,
    -- The message.
    message VARCHAR NOT NULL,
    -- Values found in the line, a JSON object.
    fields JSON NOT NULL
);

-- Alerts that fired.
CREATE TABLE alert (
    -- The source it comes from.
    source_id INTEGER NOT NULL,
    -- Name of the alert.
    name VARCHAR NOT NULL,
    -- When it began to fire, ns since the Unix epoch.
    start_ns BIGINT NOT NULL,
    -- When it ended, ns since the Unix epoch; NULL when it had not.
    end_ns BIGINT,
    -- Severity; NULL when the source does not say.
    severity VARCHAR,
    -- Labels, a JSON object.
    labels JSON NOT NULL,
    -- Annotations, a JSON object.
    annotations JSON NOT NULL
);

-- Changes made to the system.
CREATE TABLE change (
    -- Id as the source gives it, else made from the source and the line.
    id VARCHAR NOT NULL,
    -- The source it comes from.
    source_id INTEGER NOT NULL,
    -- Time, ns since the Unix epoch.
    ts_ns BIGINT NOT NULL,
    -- 'deploy', 'config', 'scale', 'flag' or 'restart', or the source's own word.
    kind VARCHAR NOT NULL,
    -- What was changed, for example 'deployment/llm-engine'.
    subject VARCHAR NOT NULL,
    -- State before; NULL when unknown.
    before VARCHAR,
    -- State after; NULL when unknown.
    after VARCHAR,
    -- How it became known: 'record' (a change log) or the telemetry it was derived from.
    origin VARCHAR NOT NULL,
    -- What else its record says, such as a revision, a JSON object; NULL when nothing.
    details JSON,
    -- When it took effect: the last start of a process that it brought, seen to serve, ns since the
    -- Unix epoch; NULL where none was seen.
    effective_ns BIGINT
);

-- Settings of the system, one row for each key.
CREATE TABLE config (
    -- The source it comes from.
    source_id INTEGER NOT NULL,
    -- What is configured, for example 'Deployment/llm-engine'.
    subject VARCHAR NOT NULL,
    -- Name of the setting; a command-line flag without its dashes and with '-' as '_'.
    key VARCHAR NOT NULL,
    -- Value as text; NULL when the setting has none.
    value VARCHAR,
    -- From when on it held, ns since the Unix epoch; NULL when the file does not say.
    ts_ns BIGINT
);

-- Text of small configuration files, so that a fix can be a patch against them.
CREATE TABLE config_file (
    -- The source it comes from.
    source_id INTEGER NOT NULL,
    -- Path inside the bundle, for example 'config/llm-engine.yaml'.
    path VARCHAR NOT NULL,
    -- The whole text, decoded as UTF-8.
    text VARCHAR NOT NULL
);
