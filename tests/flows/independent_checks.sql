-- Does a published bundle keep its promises? Written against the files alone: it shares no code
-- with the gates. Each row of the result is a broken promise. $folder and $groups are replaced.

WITH regions AS (SELECT * FROM read_csv('$folder/regions.csv', all_varchar = true)),
cells AS (SELECT * FROM read_parquet('$folder/group_sizes.parquet')),
as_text AS (SELECT * FROM read_csv('$folder/group_sizes.csv', all_varchar = true)),
-- A leaf that ends above a level counts as part of it.
reaches AS (
  SELECT r.region, l.level
  FROM regions r, (SELECT DISTINCT level::INT AS level FROM regions) l
  WHERE r.level::INT = l.level
     OR (r.level::INT < l.level AND r.region NOT IN (SELECT parent FROM regions WHERE parent <> ''))
)
SELECT 'consistency' AS promise, count(*) AS broken FROM (
  SELECT p.region, p.size FROM cells p
  JOIN regions c ON c.parent = p.region
  JOIN cells k ON k.region = c.region AND k.size = p.size
  GROUP BY p.region, p.size, p.count HAVING p.count <> sum(k.count)
) HAVING count(*) > 0
UNION ALL
SELECT 'non-negativity', count(*) FROM cells WHERE count < 0 HAVING count(*) > 0
UNION ALL
SELECT 'integrality', count(*) FROM as_text WHERE NOT regexp_full_match(count, '[0-9]+') HAVING count(*) > 0
UNION ALL
SELECT 'faithfulness', count(*) FROM (
  SELECT reaches.level FROM reaches JOIN cells USING (region)
  GROUP BY reaches.level HAVING sum(cells.count) <> $groups
) HAVING count(*) > 0
UNION ALL
SELECT 'completeness', count(*) FROM (
  SELECT region, size FROM cells GROUP BY region, size HAVING count(*) <> 1
) HAVING count(*) > 0
UNION ALL
SELECT 'every region has every size', count(*) FROM (
  SELECT r.region FROM regions r LEFT JOIN cells USING (region)
  GROUP BY r.region HAVING count(cells.size) <> $sizes
) HAVING count(*) > 0
UNION ALL
SELECT 'no other region', count(*) FROM cells WHERE region NOT IN (SELECT region FROM regions) HAVING count(*) > 0
UNION ALL
SELECT 'both formats say the same', count(*) FROM (
  SELECT level::VARCHAR, region, size::VARCHAR, count::VARCHAR FROM cells
  EXCEPT SELECT level, region, size, count FROM as_text
) HAVING count(*) > 0
UNION ALL
SELECT 'every count within its margins', count(*) FROM cells
FULL JOIN read_csv('$folder/margins.csv') AS m USING (level, region, size)
WHERE (0 <= lower_95 AND lower_95 <= lower_90 AND lower_90 <= count
       AND count <= upper_90 AND upper_90 <= upper_95) IS NOT TRUE
HAVING count(*) > 0
