-- Time of a decode step, distance to float32 and shared tokens of each number format that was tried.
SELECT
    setting,
    any_value(value) FILTER (figure = 'decode_step') AS step_ns,
    any_value(coalesce(low, value)) FILTER (figure = 'decode_step') AS low_ns,
    any_value(coalesce(high, value)) FILTER (figure = 'decode_step') AS high_ns,
    any_value(value) FILTER (figure = 'kl_to_float32') AS kl,
    any_value(value) FILTER (figure = 'top1_agreement') AS same,
    bool_or(recommended) AS recommended
FROM what_if
WHERE study = 'quant'
GROUP BY setting
HAVING step_ns IS NOT NULL AND kl IS NOT NULL
ORDER BY step_ns, setting;
