-- Rows of spans that say again what another one of their part says; the one that says most is kept.
CREATE OR REPLACE TEMP TABLE span_copy AS
SELECT x.rowid AS row, x.source_id
FROM span AS x
JOIN source AS s ON s.id = x.source_id
WHERE x.start_ns IS NOT NULL
QUALIFY row_number() OVER (
    PARTITION BY s.part, x.trace_id, x.span_id, x.service, x.name, x.kind, x.start_ns, x.dur_ns
    ORDER BY length(CAST(x.attributes AS VARCHAR)) DESC, x.source_id, x.rowid) > 1;
