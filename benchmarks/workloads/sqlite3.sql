-- A small library catalogue in memory: rows inserted, indexed, joined, searched, changed, deleted.
PRAGMA foreign_keys = ON;

CREATE TABLE author(id INTEGER PRIMARY KEY, name TEXT NOT NULL, country TEXT NOT NULL);
CREATE TABLE book(
    id INTEGER PRIMARY KEY,
    author_id INTEGER NOT NULL REFERENCES author(id),
    title TEXT NOT NULL,
    year INTEGER NOT NULL,
    tags TEXT NOT NULL
);
CREATE TABLE loan(book_id INTEGER NOT NULL REFERENCES book(id), day INTEGER NOT NULL);
CREATE TABLE history(book_id INTEGER, what TEXT);
CREATE TRIGGER book_changed AFTER UPDATE OF title ON book BEGIN
    INSERT INTO history VALUES (old.id, printf('%s -> %s', old.title, new.title));
END;

BEGIN;
INSERT INTO author
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 250)
SELECT i, printf('author %d', i * 7919 % 250), char(65 + i % 26, 65 + i * 7 % 26) FROM n;

INSERT INTO book
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
SELECT
    i,
    1 + i * 7919 % 250,
    substr('the quick brown fox jumps over the lazy dog again and again', 1 + i % 20, 5 + i % 37),
    1900 + i * 31 % 120,
    json_array(i % 5, i % 7, 't' || i % 11)
FROM n;

INSERT INTO loan
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500)
SELECT 1 + i * 104729 % 2000, i * 17 % 365 FROM n;
COMMIT;

CREATE INDEX book_by_author ON book(author_id, year);
CREATE INDEX loan_by_book ON loan(book_id);
ANALYZE;

CREATE VIEW popular AS
SELECT b.id, b.title, a.name, a.country, count(*) AS loans
FROM book AS b JOIN author AS a ON a.id = b.author_id JOIN loan AS l ON l.book_id = b.id
GROUP BY b.id;

SELECT country, count(*), group_concat(DISTINCT year)
FROM author AS a JOIN book AS b ON b.author_id = a.id
GROUP BY country ORDER BY 2 DESC, 1 LIMIT 20;

SELECT country, sum(loans), max(title) FROM popular GROUP BY country HAVING sum(loans) > 50;

SELECT id, title, loans, rank() OVER (PARTITION BY country ORDER BY loans DESC) AS place
FROM popular ORDER BY place, id LIMIT 50;

SELECT value, count(*) FROM book, json_each(tags) GROUP BY value ORDER BY 2 DESC, 1;

SELECT year, count(*), max(length(title)) FROM book
WHERE title LIKE '%fox%' OR title GLOB '*dog*' GROUP BY year;

WITH busy AS (SELECT book_id FROM loan GROUP BY book_id HAVING count(*) > 1),
     old AS (SELECT id FROM book WHERE year < 1930)
SELECT count(*) FROM (SELECT * FROM busy INTERSECT SELECT * FROM old);

UPDATE book SET title = title || ' (2nd ed.)' WHERE id % 7 = 0;
DELETE FROM loan WHERE day < 120;
DELETE FROM book WHERE year % 3 = 0 AND id NOT IN (SELECT book_id FROM loan);
SELECT count(*), max(what) FROM history;
VACUUM;
