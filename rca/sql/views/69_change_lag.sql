-- How long before the explained window each change of the incident's recordings was made, and how
-- surely: what the window's start and the clock of the traces that it may rest on leave open.
CREATE VIEW change_lag AS
SELECT
    -- Id of the change.
    c.id,
    -- The source it comes from.
    c.source_id,
    -- Time of the change as its record has it, ns since the Unix epoch.
    c.ts_ns,
    -- Seconds from the change to the start of the window; negative when it came after.
    (w.start_ns - (c.ts_ns + src.shift_ns)) / 1e9 AS lag_s,
    -- Half width of its interval in seconds: the window's margin, and the error of the traces' skew.
    (w.margin_ns + coalesce(t.error_ns, 0)) / 1e9 AS lag_error_s,
    -- Whether its clock is that of the metrics or was set against it; else it is taken as recorded.
    src.kind = 'metrics' OR src.shift_error_ns IS NOT NULL AS is_checked
FROM change AS c
JOIN source AS src ON src.id = c.source_id
CROSS JOIN (
    SELECT start_ns, margin_ns FROM incident_window WHERE status = 'incident'
    QUALIFY row_number() OVER (ORDER BY id) = 1) AS w
CROSS JOIN (
    SELECT max(shift_error_ns) AS error_ns FROM source WHERE part = 'incident' AND kind = 'trace') AS t
WHERE src.part = 'incident';
