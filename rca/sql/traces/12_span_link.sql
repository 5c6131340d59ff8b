-- Rows that came with copies of spans.
DELETE FROM span_link WHERE rowid IN (
    SELECT row FROM (
        SELECT x.rowid AS row, row_number() OVER (
            PARTITION BY s.part, x.trace_id, x.span_id, x.linked_trace_id, x.linked_span_id,
                CAST(x.attributes AS VARCHAR)
            ORDER BY x.source_id, x.rowid) AS place
        FROM span_link AS x
        JOIN source AS s ON s.id = x.source_id)
    WHERE place > 1);
