-- Requests of which a span carries an attribute with a value, on the span or on its resource.
SELECT DISTINCT s.source_id, s.trace_id
FROM trace_span AS s
WHERE json_extract_string(s.attributes, $1) = $3
    OR json_extract_string(s.attributes, $2) = $3;
