-- Requests of the window ($1 to $2) and of the reference: the baseline ($3 = 'baseline'), else what
-- came before the window ($4) and belongs to no other incident; $3 is NULL where there is none.
SELECT
    source_id, trace_id, request_id,
    CASE WHEN part = 'incident' AND start_ns BETWEEN $1 AND $2 THEN 'window' ELSE 'reference' END AS side,
    start_ns, e2e_ns, status, queue_ns, ttft_ns, itl_ns, prefill_ns, decode_ns, engine_ns,
    input_tokens, output_tokens, model, tenant, replica, service
FROM request AS r
WHERE start_ns IS NOT NULL
    AND e2e_ns IS NOT NULL
    AND ((part = 'incident' AND start_ns BETWEEN $1 AND $2)
        OR ($3 = 'baseline' AND part = 'baseline')
        OR ($3 = 'lead-in' AND part = 'incident' AND start_ns < $4
            AND NOT EXISTS (SELECT 1 FROM incident_window AS w
                WHERE w.status = 'incident'
                    AND r.start_ns BETWEEN w.start_ns - w.margin_ns AND w.end_ns + w.margin_ns)));
