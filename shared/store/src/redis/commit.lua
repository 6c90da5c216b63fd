-- One batch: all of it, or none of it. `memory.rs` says the same in Rust.
--
-- KEYS   the key or log of each write but 'publish', in the order of the writes
-- ARGV   six fields a write:
--        1 what    'check', 'put', 'delete', 'newer', 'append' or 'publish'
--        2 expect  'absent', 'is', 'absent-or', or '' where the write expects nothing;
--                  newer: 'older' or 'not-older' if the client has judged the value `old`, '' if it has judged none
--        3 old     the value that is expected; newer: the value that the client has judged
--        4 new     the value, record or message; for a put of a position, which append it is of (from 1)
--        5 ttl     in milliseconds, '' for ever
--        6 extra   put: 'text' or 'position'; newer: its seq; append: about how many to keep, '' all;
--                  publish: the channel
-- reply  { 1, position, … }             applied; a position for each append
--        { 3, position, … }             applied, but the server does not let a script publish: the client has to
--        { 0, n, there, n, there, … }   refused; each of KEYS (from 1) that failed, with what is there, nil if nothing
--        { 2, n, there, n, there, … }   nothing done; each of KEYS whose value only the client can judge
--
-- Lua has no rollback, so whatever can fail comes before the first write, or is the first write, or is undone. (A server
-- that is out of memory, is a replica, lacks replicas or cannot save refuses a script's first write and none after it.)

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

-- The seq of a value that begins with it, `{"seq":N,` or `{"seq":N}`, as our own do. Any other value is for the client to
-- judge: a JSON parser here would have to agree with the client's. 15 digits are exact in Lua.
local function leading_seq(json)
  local digits = string.match(json, '^{"seq":(%d+)[,}]')
  local plain = digits and #digits <= 15 and (digits == '0' or string.sub(digits, 1, 1) ~= '0')
  return plain and tonumber(digits)
end

-- Judge: every expectation against what is there; one that fails refuses all, and all that fail are told.
-- (Reading a key of another type fails right here, with nothing written.)
local refusal, unjudged = { 0 }, { 2 }
for _, write in ipairs(writes) do
  if write.what == 'append' then
    write.begins = redis.call('XLEN', write.key) == 0
  elseif write.what == 'newer' then
    local there = redis.call('GET', write.key)
    if not there then
      write.due = true
    elseif write.expect ~= '' and there == write.old then
      write.due = write.expect == 'older'
    else
      local seq = leading_seq(there)
      if seq then
        write.due = seq < tonumber(write.extra)
      else
        unjudged[#unjudged + 1] = write.n
        unjudged[#unjudged + 1] = there
      end
    end
  elseif write.what ~= 'publish' then
    local there = redis.call('GET', write.key)
    local holds
    if there then
      holds = write.expect ~= 'absent' and there == write.old
    else
      holds = write.expect ~= 'is'
    end
    if not holds then
      refusal[#refusal + 1] = write.n
      refusal[#refusal + 1] = there
    end
    write.due = write.what == 'put'
  end
end
if #refusal > 1 then
  return refusal
end
if #unjudged > 1 then
  return unjudged
end

-- Permit: a user who may do one part of the batch and not another does none of it. (Redis has checked KEYS already. A
-- server that has no access control lists has no such function.)
local function permit(...)
  if redis.acl_check_cmd and not redis.acl_check_cmd(...) then
    error('NOPERM the user may not do all of the batch')
  end
end
for _, write in ipairs(writes) do
  if write.what == 'append' then
    permit('XADD', write.key, '*', 'data', '')
    permit('XDEL', write.key, '0-0')
    permit('DEL', write.key)
    if write.ttl == '' then
      permit('PERSIST', write.key)
    else
      permit('PEXPIRE', write.key, write.ttl)
    end
  elseif write.due then
    permit('SET', write.key, '')
  elseif write.what == 'delete' then
    permit('DEL', write.key)
  end
end

-- Append: a value may name the position. A log that another program filled to the last position takes no more: then what
-- was appended before is taken back. A log lives as long as its last append says.
local reply, positions, appended = { 1 }, {}, {}
for _, write in ipairs(writes) do
  if write.what == 'append' then
    local position
    if write.extra == '' then
      position = redis.pcall('XADD', write.key, '*', 'data', write.new)
    else
      position = redis.pcall('XADD', write.key, 'MAXLEN', '~', write.extra, '*', 'data', write.new)
    end
    if type(position) == 'table' and position.err then
      for n, earlier in ipairs(appended) do
        redis.call('XDEL', earlier.key, positions[n])
        if earlier.begins then
          redis.call('DEL', earlier.key)
        end
      end
      return position
    end
    appended[#appended + 1] = write
    positions[#positions + 1] = position
    reply[#reply + 1] = position
  end
end
for _, write in ipairs(appended) do
  if write.ttl == '' then
    redis.call('PERSIST', write.key)
  else
    redis.call('PEXPIRE', write.key, write.ttl)
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
  if write.due then
    set(write, write.extra == 'position' and positions[tonumber(write.new)] or write.new)
  end
end

-- Delete: after what needs memory. A batch that only deletes is done on a full server too.
for _, write in ipairs(writes) do
  if write.what == 'delete' then
    redis.call('DEL', write.key)
  end
end

-- Publish: last, so that nobody hears of what did not happen. Nobody can read before the script has ended, so whoever
-- hears it finds everything in place. (The client sends the script without this paragraph to a server that refuses it.)
for _, write in ipairs(writes) do
  if write.what == 'publish' then
    local heard = redis.pcall('PUBLISH', write.extra, write.new)
    if type(heard) == 'table' and heard.err then
      reply[1] = 3
    end
  end
end

return reply
