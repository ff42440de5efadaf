CREATE TABLE IF NOT EXISTS about (key VARCHAR PRIMARY KEY, value VARCHAR NOT NULL);

CREATE TABLE IF NOT EXISTS data_sets (
  data VARCHAR PRIMARY KEY,
  levels INTEGER NOT NULL,
  regions INTEGER NOT NULL,
  leaves INTEGER NOT NULL,
  largest_size INTEGER NOT NULL,
  groups BIGINT NOT NULL,
  public_units BOOLEAN NOT NULL
);

CREATE TABLE IF NOT EXISTS runs (
  data VARCHAR,
  mechanism VARCHAR,
  epsilon VARCHAR,
  repetition INTEGER,
  seed VARCHAR NOT NULL,
  outcome VARCHAR NOT NULL,
  seconds DOUBLE,
  distance BIGINT,
  memory BIGINT,
  violations BIGINT,
  time_limit DOUBLE NOT NULL,
  note VARCHAR NOT NULL,
  PRIMARY KEY (data, mechanism, epsilon, repetition)
);

CREATE TABLE IF NOT EXISTS errors (
  data VARCHAR,
  mechanism VARCHAR,
  epsilon VARCHAR,
  repetition INTEGER,
  level INTEGER,
  l1 BIGINT NOT NULL,
  earth_mover BIGINT NOT NULL,
  range_error DOUBLE NOT NULL,
  PRIMARY KEY (data, mechanism, epsilon, repetition, level)
);

-- Mean, standard error and number of repetitions of one metric; the metrics stand below each other.
CREATE OR REPLACE VIEW measured AS
  UNPIVOT (
    SELECT data, mechanism, epsilon, repetition, level,
      CAST(l1 AS DOUBLE) AS l1, CAST(earth_mover AS DOUBLE) AS earth_mover, range_error
    FROM errors
  ) ON l1, earth_mover, range_error INTO NAME metric VALUE value;

CREATE OR REPLACE VIEW means AS
  SELECT data, mechanism, epsilon, level, metric, avg(value) AS mean,
    stddev_samp(value) / sqrt(count(*)) AS standard_error, count(*) AS repetitions
  FROM measured
  GROUP BY ALL;

-- The error of all levels together, as in Figure 10.
CREATE OR REPLACE VIEW totals AS
  SELECT data, mechanism, epsilon, metric, avg(value) AS mean,
    stddev_samp(value) / sqrt(count(*)) AS standard_error, count(*) AS repetitions
  FROM (
    SELECT data, mechanism, epsilon, repetition, metric, sum(value) AS value
    FROM measured GROUP BY ALL
  )
  GROUP BY ALL;

-- Ratio of mean errors to those of M_c^dp over the repetitions that both have. The standard error is
-- that of a ratio of paired means (the delta method): of a - ratio * b, over the mean of b.
CREATE OR REPLACE VIEW ratios AS
  WITH paired AS (
    SELECT a.data, a.mechanism, a.epsilon, a.level, a.metric,
      avg(a.value) AS mean, avg(b.value) AS base, var_samp(a.value) AS spread,
      var_samp(b.value) AS base_spread, covar_samp(a.value, b.value) AS together,
      count(*) AS repetitions
    FROM measured AS a
    JOIN measured AS b USING (data, epsilon, repetition, level, metric)
    WHERE b.mechanism = 'cumulative'
    GROUP BY ALL
  )
  SELECT data, mechanism, epsilon, level, metric, mean / base AS ratio,
    sqrt(greatest(0, spread + (mean / base) ** 2 * base_spread - 2 * mean / base * together)
      / repetitions) / base AS standard_error,
    repetitions
  FROM paired
  WHERE base > 0;

CREATE OR REPLACE VIEW costs AS
  SELECT data, mechanism, epsilon, count(*) FILTER (outcome = 'answered') AS answered,
    avg(seconds) FILTER (outcome = 'answered') AS seconds,
    stddev_samp(seconds) FILTER (outcome = 'answered')
      / sqrt(count(*) FILTER (outcome = 'answered')) AS standard_error,
    max(memory) AS memory, avg(violations) AS violations,
    stddev_samp(violations) / sqrt(count(violations)) AS violations_error,
    max(violations) AS most_violations,
    count(*) FILTER (outcome = 'timed out') AS timed_out,
    count(*) FILTER (outcome = 'not applicable') AS not_applicable,
    count(*) FILTER (outcome = 'failed') AS failed,
    max(time_limit) AS time_limit
  FROM runs
  GROUP BY ALL;
