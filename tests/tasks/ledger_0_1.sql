BEGIN TRANSACTION;
CREATE TABLE charges (
	"key" VARCHAR(64) NOT NULL, 
	population VARCHAR(64) NOT NULL, 
	epsilon VARCHAR(64) NOT NULL, 
	PRIMARY KEY ("key"), 
	FOREIGN KEY("key") REFERENCES measurements ("key"), 
	FOREIGN KEY(population) REFERENCES populations (name)
);
INSERT INTO "charges" VALUES('residents|household-sizes|2026-Q3|1/3|digest','residents','1/3');
CREATE TABLE events (
	sequence INTEGER NOT NULL, 
	at VARCHAR(32) NOT NULL, 
	actor VARCHAR(200) NOT NULL, 
	kind VARCHAR(32) NOT NULL, 
	product VARCHAR(64), 
	release VARCHAR(64), 
	facts JSON NOT NULL, 
	PRIMARY KEY (sequence)
);
INSERT INTO "events" VALUES(1,'2026-09-21T14:13:20.125+00:00','operator@office','population','household-sizes','2026-Q3','{"population": "residents", "budget": "1"}');
INSERT INTO "events" VALUES(2,'2026-09-21T14:13:20.125+00:00','operator@office','reserved','household-sizes','2026-Q3','{"key": "residents|household-sizes|2026-Q3|1/3|digest"}');
INSERT INTO "events" VALUES(3,'2026-09-21T14:13:20.125+00:00','operator@office','measured','household-sizes','2026-Q3','{"key": "residents|household-sizes|2026-Q3|1/3|digest", "digest": "dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd", "epsilon": "1/3", "population": "residents", "sampler": "opendp"}');
INSERT INTO "events" VALUES(4,'2026-09-21T14:13:20.125+00:00','operator@office','reserved','household-sizes','2026-Q4','{"key": "residents|household-sizes|2026-Q4|1/6|digest"}');
INSERT INTO "events" VALUES(5,'2026-09-21T14:13:20.125+00:00','operator@office','validated','household-sizes','2026-Q3','{"passed": true, "checks": {"totals": true}, "digest": "eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee"}');
CREATE TABLE measurement_chunks (
	"key" VARCHAR(64) NOT NULL, 
	number INTEGER NOT NULL, 
	data BLOB NOT NULL, 
	PRIMARY KEY ("key", number), 
	FOREIGN KEY("key") REFERENCES measurements ("key")
);
INSERT INTO "measurement_chunks" VALUES('residents|household-sizes|2026-Q3|1/3|digest',0,X'780163658080BFFF2100CA7560843200A634083D');
CREATE TABLE measurements (
	"key" VARCHAR(64) NOT NULL, 
	population VARCHAR(64) NOT NULL, 
	product VARCHAR(64) NOT NULL, 
	release VARCHAR(64) NOT NULL, 
	epsilon VARCHAR(64) NOT NULL, 
	descriptor JSON NOT NULL, 
	owner VARCHAR(200), 
	lease_expires FLOAT, 
	digest VARCHAR(64), 
	regions INTEGER, 
	first_size INTEGER, 
	last_size INTEGER, 
	groups BIGINT, 
	sampler VARCHAR(64), 
	simulation BOOLEAN, 
	PRIMARY KEY ("key"), 
	CONSTRAINT one_measurement_per_release UNIQUE (product, release), 
	FOREIGN KEY(population) REFERENCES populations (name)
);
INSERT INTO "measurements" VALUES('residents|household-sizes|2026-Q3|1/3|digest','residents','household-sizes','2026-Q3','1/3','{"population": "residents", "product": "household-sizes", "release": "2026-Q3", "epsilon": "1/3", "source": "digest"}',NULL,NULL,'dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd',2,1,2,17,'opendp',0);
INSERT INTO "measurements" VALUES('residents|household-sizes|2026-Q4|1/6|digest','residents','household-sizes','2026-Q4','1/6','{"population": "residents", "product": "household-sizes", "release": "2026-Q4", "epsilon": "1/6", "source": "digest"}','office/2225/764963/2a0308bda62c4042',1790000900.125,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE populations (
	name VARCHAR(64) NOT NULL, 
	budget VARCHAR(64) NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "populations" VALUES('residents','1');
CREATE TABLE runs (
	product VARCHAR(64) NOT NULL, 
	release VARCHAR(64) NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	stage VARCHAR(32) NOT NULL, 
	owner VARCHAR(200) NOT NULL, 
	updated FLOAT NOT NULL, 
	error VARCHAR(64), 
	PRIMARY KEY (product, release)
);
INSERT INTO "runs" VALUES('household-sizes','2026-Q3','published','publish','office/2225/764963/dd8978c145fd270b',1790000000.125,NULL);
COMMIT;
