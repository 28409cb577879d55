-- The first schema, as stores were laid out by it. Never changed: every upgrade is tried from here.
CREATE TABLE item (
	id TEXT NOT NULL,
	"key" TEXT,
	payload TEXT NOT NULL,
	state TEXT NOT NULL,
	priority INTEGER NOT NULL,
	position BIGINT NOT NULL,
	not_before_ms BIGINT NOT NULL,
	generation BIGINT NOT NULL,
	token TEXT NOT NULL,
	run TEXT NOT NULL,
	worker TEXT NOT NULL,
	expires_ms BIGINT NOT NULL,
	failures INTEGER NOT NULL,
	losses INTEGER NOT NULL,
	reason TEXT NOT NULL,
	feedback TEXT NOT NULL,
	created_ms BIGINT NOT NULL,
	updated_ms BIGINT NOT NULL,
	CONSTRAINT pk_item PRIMARY KEY (id),
	CONSTRAINT ck_item_state CHECK (state IN ('ready', 'claimed', 'delivering', 'held', 'blocked', 'done', 'failed', 'exhausted', 'cancelled')),
	CONSTRAINT uq_item_key UNIQUE ("key"),
	CONSTRAINT uq_item_position UNIQUE (position)
);
CREATE INDEX ix_item_lease ON item (expires_ms) WHERE state IN ('claimed', 'delivering');
CREATE INDEX ix_item_claim ON item (priority DESC, not_before_ms, position) WHERE state = 'ready';
CREATE TABLE event (
	seq INTEGER NOT NULL,
	at_ms BIGINT NOT NULL,
	kind TEXT NOT NULL,
	item TEXT NOT NULL,
	run TEXT NOT NULL,
	data TEXT NOT NULL,
	leaf VARCHAR(64) NOT NULL,
	CONSTRAINT pk_event PRIMARY KEY (seq)
);
CREATE INDEX ix_event_item_seq ON event (item, seq);
CREATE INDEX ix_event_run_seq ON event (run, seq);
CREATE TRIGGER event_append_only_update BEFORE update ON event BEGIN SELECT RAISE(ABORT, 'event is append-only'); END;
CREATE TRIGGER event_append_only_delete BEFORE delete ON event BEGIN SELECT RAISE(ABORT, 'event is append-only'); END;
CREATE TABLE blob (
	digest TEXT NOT NULL,
	size BIGINT NOT NULL,
	content BLOB NOT NULL,
	CONSTRAINT pk_blob PRIMARY KEY (digest)
);
CREATE TRIGGER blob_append_only_update BEFORE update ON blob BEGIN SELECT RAISE(ABORT, 'blob is append-only'); END;
CREATE TRIGGER blob_append_only_delete BEFORE delete ON blob BEGIN SELECT RAISE(ABORT, 'blob is append-only'); END;
CREATE TABLE verdict (
	"key" TEXT NOT NULL,
	target TEXT NOT NULL,
	head TEXT NOT NULL,
	at_ms BIGINT NOT NULL,
	report TEXT NOT NULL,
	CONSTRAINT pk_verdict PRIMARY KEY ("key")
);
CREATE INDEX ix_verdict_target_at_ms ON verdict (target, at_ms);
CREATE TABLE audit_head (
	id INTEGER NOT NULL,
	size BIGINT NOT NULL,
	peaks TEXT NOT NULL,
	CONSTRAINT pk_audit_head PRIMARY KEY (id),
	CONSTRAINT ck_audit_head_single CHECK (id = 1)
);
CREATE TABLE budget (
	scope TEXT NOT NULL,
	period TEXT NOT NULL,
	steps BIGINT NOT NULL,
	tokens BIGINT NOT NULL,
	nanousd BIGINT NOT NULL,
	ms BIGINT NOT NULL,
	CONSTRAINT pk_budget PRIMARY KEY (scope, period)
);
CREATE TABLE reservation (
	id BIGINT NOT NULL,
	item TEXT NOT NULL,
	period TEXT NOT NULL,
	worker TEXT NOT NULL,
	run TEXT NOT NULL,
	steps BIGINT NOT NULL,
	tokens BIGINT NOT NULL,
	nanousd BIGINT NOT NULL,
	at_ms BIGINT NOT NULL,
	CONSTRAINT pk_reservation PRIMARY KEY (id)
);
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL,
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
CREATE TABLE dependency (
	item TEXT NOT NULL,
	needs TEXT NOT NULL,
	ordinal INTEGER NOT NULL,
	CONSTRAINT pk_dependency PRIMARY KEY (item, needs),
	CONSTRAINT fk_dependency_item_item FOREIGN KEY(item) REFERENCES item (id),
	CONSTRAINT fk_dependency_needs_item FOREIGN KEY(needs) REFERENCES item (id)
);
CREATE INDEX ix_dependency_needs ON dependency (needs);
CREATE TABLE wanted (
	item TEXT NOT NULL,
	"key" TEXT NOT NULL,
	ordinal INTEGER NOT NULL,
	CONSTRAINT pk_wanted PRIMARY KEY (item, "key"),
	CONSTRAINT fk_wanted_item_item FOREIGN KEY(item) REFERENCES item (id)
);
CREATE INDEX ix_wanted_key ON wanted ("key");
CREATE TABLE answer (
	item TEXT NOT NULL,
	digest TEXT NOT NULL,
	CONSTRAINT pk_answer PRIMARY KEY (item),
	CONSTRAINT fk_answer_item_item FOREIGN KEY(item) REFERENCES item (id)
);
CREATE TABLE attempt (
	item TEXT NOT NULL,
	generation BIGINT NOT NULL,
	token TEXT NOT NULL,
	run TEXT NOT NULL,
	worker TEXT NOT NULL,
	started_ms BIGINT NOT NULL,
	ended_ms BIGINT,
	outcome TEXT,
	CONSTRAINT pk_attempt PRIMARY KEY (item, generation),
	CONSTRAINT fk_attempt_item_item FOREIGN KEY(item) REFERENCES item (id)
);
INSERT INTO alembic_version (version_num) VALUES ('0001');
INSERT INTO audit_head (id, size, peaks) VALUES (1, 0, '');
