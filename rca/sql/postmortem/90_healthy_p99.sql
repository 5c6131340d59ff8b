-- End-to-end time that 99 of 100 healthy requests keep; the limit where no objective is known.
SELECT CAST(quantile_cont(e2e_ns, 0.99) AS BIGINT) AS limit_ns, count(*) AS n
FROM request
WHERE part = 'baseline' AND e2e_ns IS NOT NULL;
