-- One batch: all of it, or none of it. `memory.rs` says the same in Rust.
--
-- KEYS   the key or log of each write but 'publish', in the order of the writes
-- ARGV   six fields a write:
--        1 what    'check', 'put', 'delete', 'newer', 'append' or 'publish'
--        2 expect  'absent', 'is', 'absent-or', or '' where the write expects nothing
--        3 old     the value that is expected
--        4 new     the value, record or message; for a put of a position, which append it is of (from 1)
--        5 ttl     in milliseconds, '' for ever
--        6 extra   put: 'text' or 'position'; newer: its seq; append: about how many to keep, '' all;
--                  publish: the channel
-- reply  { 1, position, … }             applied; a position for each append
--        { 0, n, there, n, there, … }   refused; each of KEYS (from 1) that failed, with what is there, nil if nothing
--
-- Lua has no rollback, so whatever can fail comes before the first write.

local FIELDS = 6
local writes, named = {}, 0
for at = 1, #ARGV, FIELDS do
  local write = {
    what = ARGV[at], expect = ARGV[at + 1], old = ARGV[at + 2],
    new = ARGV[at + 3], ttl = ARGV[at + 4], extra = ARGV[at + 5],
  }
  if write.what ~= 'publish' then
    named = named + 1
    write.n, write.key = named, KEYS[named]
  end
  writes[#writes + 1] = write
end

-- The seq of a JSON object: a whole number up to 2^53. nil for anything else, which any sequence number is newer than.
local function seq_of(json)
  local read, object = pcall(cjson.decode, json)
  local seq = read and type(object) == 'table' and object.seq
  local whole = type(seq) == 'number' and seq >= 0 and seq <= 9007199254740992 and seq % 1 == 0
  return whole and seq or nil
end

-- Judge: every expectation against what is there; one that fails refuses all, and all that fail are told.
-- (Reading a key of another type fails right here, with nothing written.)
local refusal = { 0 }
for _, write in ipairs(writes) do
  if write.what == 'append' then
    redis.call('XLEN', write.key)
  elseif write.what ~= 'publish' then
    write.there = redis.call('GET', write.key)
    local holds
    if write.expect == '' then
      holds = true
    elseif write.there then
      holds = write.expect ~= 'absent' and write.there == write.old
    else
      holds = write.expect ~= 'is'
    end
    if not holds then
      refusal[#refusal + 1] = write.n
      refusal[#refusal + 1] = write.there
    end
  end
end
if #refusal > 1 then
  return refusal
end

-- Publish: ahead of the writes, because a server may forbid it inside a script. Nobody can read before the script
-- has ended, so who hears it finds everything in place.
for _, write in ipairs(writes) do
  if write.what == 'publish' then
    redis.call('PUBLISH', write.extra, write.new)
  end
end

-- Append: a value may name the position. A log lives as long as its last append says.
local reply, positions = { 1 }, {}
for _, write in ipairs(writes) do
  if write.what == 'append' then
    local position
    if write.extra == '' then
      position = redis.call('XADD', write.key, '*', 'data', write.new)
    else
      position = redis.call('XADD', write.key, 'MAXLEN', '~', write.extra, '*', 'data', write.new)
    end
    if write.ttl == '' then
      redis.call('PERSIST', write.key)
    else
      redis.call('PEXPIRE', write.key, write.ttl)
    end
    positions[#positions + 1] = position
    reply[#reply + 1] = position
  end
end

-- Set: what was expected makes way for what was asked.
local function set(write, value)
  if write.ttl == '' then
    redis.call('SET', write.key, value)
  else
    redis.call('SET', write.key, value, 'PX', write.ttl)
  end
end
for _, write in ipairs(writes) do
  if write.what == 'put' then
    set(write, write.extra == 'position' and positions[tonumber(write.new)] or write.new)
  elseif write.what == 'newer' then
    local there = write.there and seq_of(write.there)
    if not there or there < tonumber(write.extra) then
      set(write, write.new)
    end
  end
end
-- Deletions come last: a server out of memory refuses all of the above, and none of these.
for _, write in ipairs(writes) do
  if write.what == 'delete' then
    redis.call('DEL', write.key)
  end
end

return reply
