-- Applies batches, one after the other: of each batch all of its writes, or none. `memory.rs` is the same in Rust.
--
-- KEYS   the key or log of each write but 'publish', in the order of the writes; a log with several appends is listed for each.
--        The log of an 'append' or a 'clear' is followed by its mark (see MARK_MILLIS)
-- ARGV   for each batch the number of its writes, and then six fields a write:
--        1 what    'check', 'put', 'delete', 'newer', 'append', 'extend' (an append to a log that exists), 'clear' or 'publish'
--        2 expect  'absent', 'is', 'absent-or', or '' where the write expects nothing;
--                  newer: 'older' or 'not-older' if the client has compared the value `old`, '' if it has not
--        3 old     the expected value; newer: the value that the client has compared
--        4 new     the value, record or message; for a put of a position, the number of its append (from 1)
--        5 ttl     in milliseconds, '' for ever
--        6 extra   put: 'text' or 'position'; newer: its seq; append: about how many to keep, '' for all;
--                  publish: the channel
-- reply  for each batch one of
--        { 1, position, … }             applied; a position for each append
--        { 3, position, … }             applied, but the server does not let a script publish: the client has to
--        { 0, n, there, n, there, … }   refused; the number (from 1) of each of the batch's keys that failed, and its value or nil
--        { 2, n, there, n, there, … }   nothing written; each of the batch's keys whose value only the client can compare
--        { 4, message }                 failed with this error, nothing written; or an error reply if it is the only batch
--
-- Redis does not roll back a script that fails, so in each batch every step that can fail comes before the first write,
-- or is the first write, or is undone. (A server that is out of memory, is a replica, lacks replicas or cannot save
-- refuses a script's first write, and no later one.) Every command counts: Upstash bills also those inside a script.

-- The seq of a value that begins with it, `{"seq":N,` or `{"seq":N}`, as all values of this store do. The client
-- compares any other value, because a JSON parser here might not agree with the client's. Lua is exact up to 15 digits.
local function leading_seq(json)
  local digits = string.match(json, '^{"seq":(%d+)[,}]')
  local plain = digits and #digits <= 15 and (digits == '0' or string.sub(digits, 1, 1) ~= '0')
  return plain and tonumber(digits)
end

-- The values that are known: of each key its value, false if it has none, nil if it must be read. No other client runs
-- meanwhile, so a value that was read or written here stays known, also for the batches that follow.
local known = {}

-- The value of a key. An empty stream, which another program has left, is no log: its name is free, so there is no value.
local function value(key)
  if known[key] == nil then
    local there = redis.pcall('GET', key)
    if type(there) ~= 'table' then
      known[key] = there
    elseif string.find(there.err, 'WRONGTYPE', 1, true) and redis.call('XLEN', key) == 0 then
      known[key] = false
    else
      error(there.err, 0)
    end
  end
  return known[key]
end

local function has_value(write)
  return write.what == 'check' or write.what == 'put' or write.what == 'delete' or write.what == 'newer'
end

-- A put of an absent key (a lock, a claim), which needs no read.
local function is_claim(writes)
  return #writes == 1 and writes[1].what == 'put' and writes[1].expect == 'absent'
end

-- Reads the values of all batches, and the marks of the logs that they append to, with one command. MGET answers nil also
-- for a key of another type, so missing keys are checked with EXISTS, and read one by one if any exists. (A mark that is no
-- text is none.)
local function read_ahead(batches)
  local names, is_key, missing = {}, {}, {}
  for _, writes in ipairs(batches) do
    for _, write in ipairs(is_claim(writes) and {} or writes) do
      local name = has_value(write) and write.key or write.what == 'append' and write.mark
      if name and is_key[name] == nil then
        names[#names + 1] = name
      end
      if name then
        is_key[name] = is_key[name] or has_value(write)
      end
    end
  end
  -- One value takes one GET, whatever its type.
  if #names == 0 or #names == 1 and is_key[names[1]] then
    return
  end
  local there = redis.call('MGET', unpack(names))
  for n, name in ipairs(names) do
    if there[n] or not is_key[name] then
      known[name] = there[n]
    else
      missing[#missing + 1] = name
    end
  end
  if #missing > 0 and redis.call('EXISTS', unpack(missing)) == 0 then
    for _, name in ipairs(missing) do
      known[name] = false
    end
  end
end

-- Fails if the user may not run this command. (A server without access control lists does not have the function.)
local function permit(...)
  if redis.acl_check_cmd and not redis.acl_check_cmd(...) then
    error('NOPERM the user may not do all of the batch')
  end
end

-- Sets the value and the TTL of a put, and returns whether it did. The options after it are those of the command.
local function set(write, new, ...)
  local done
  if write.ttl == '' then
    done = redis.call('SET', write.key, new, ...)
  else
    done = redis.call('SET', write.key, new, 'PX', write.ttl, ...)
  end
  if done then
    known[write.key] = new
  end
  return done
end

local function failed(reply)
  return type(reply) == 'table' and reply.err
end

-- Removes the records of these appends, and the streams that began with them.
local function undo(appended)
  for _, write in ipairs(appended) do
    redis.call('XDEL', write.key, write.position)
    if redis.call('XLEN', write.key) == 0 then
      redis.call('DEL', write.key)
    end
  end
end

-- Whether a position is after another one. Their numbers may be too large for a number of Lua, so they are compared as texts.
local function is_after(position, other)
  local function padded(of)
    local major, minor = string.match(of, '^(%d+)-(%d+)$')
    return major and string.rep('0', 20 - #major) .. major .. string.rep('0', 20 - #minor) .. minor
  end
  local bound = padded(other)
  return not bound or padded(position) > bound
end

-- A cleared log leaves its last position under a name of its own, its mark, until the server's clock has passed that position
-- by this time. A new stream takes its positions from the clock, which may step back, above all with a failover to a server
-- whose clock is behind. The name of a log may hold a user's id, so the mark does not stay for longer than clocks differ.
local MARK_MILLIS = 60 * 1000

local function leave_mark(write)
  local millis = string.match(write.last, '^%d+')
  -- A position that no clock reaches, which another program has chosen, has a mark for ever.
  if #millis > 15 then
    redis.pcall('SET', write.mark, write.last)
  else
    redis.pcall('SET', write.mark, write.last, 'PXAT', string.format('%.0f', millis + MARK_MILLIS))
  end
  known[write.mark] = write.last
end

-- Adds the record of an append, and trims its log if `trims`; the reply is its position or an error. If the log was cleared
-- and the clock is not after its last position, the record is added once more behind that position.
local function add(write, trims)
  local function add_by_clock()
    if not trims then
      return redis.pcall('XADD', write.key, '*', 'data', write.new)
    end
    return redis.pcall('XADD', write.key, 'MAXLEN', '~', write.extra, '*', 'data', write.new)
  end
  known[write.key] = nil
  local position, last = add_by_clock(), known[write.mark]
  if failed(position) or not last or is_after(position, last) then
    return position
  end
  redis.pcall('XADD', write.key, last, 'data', '')
  local behind = add_by_clock()
  if failed(behind) then
    undo({ { key = write.key, position = position }, { key = write.key, position = last } })
  else
    redis.call('XDEL', write.key, position, last)
  end
  return behind
end

-- Applies one batch.
local function apply(writes)
  -- A put of an absent key needs one command. If the key exists, the steps below find out what it holds.
  if is_claim(writes) and known[writes[1].key] == nil and set(writes[1], writes[1].new, 'NX') then
    return { 1 }
  end

  -- Check: compare every expectation with the stored value. If one fails, the batch is refused, and the refusal lists
  -- every one that failed. (Reading a key of another type is an error. Nothing is written yet.)
  local refusal, unjudged = { 0 }, { 2 }
  for _, write in ipairs(writes) do
    local there = has_value(write) and value(write.key)
    if write.what == 'newer' then
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
    elseif has_value(write) then
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
  for _, write in ipairs(writes) do
    if write.what == 'clear' then
      local newest = redis.call('XREVRANGE', write.key, '+', '-', 'COUNT', '1')[1]
      write.last = newest and newest[1]
    end
  end

  -- The appends to logs that are trimmed, and the others.
  local whole, trimmed = {}, {}
  for _, write in ipairs(writes) do
    if write.what == 'append' then
      local list = write.extra == '' and whole or trimmed
      list[#list + 1] = write
    end
  end
  local last = trimmed[#trimmed]

  -- Permit: if the user may not run every command of the batch, fail before the first write. (Redis has checked KEYS
  -- already.)
  for _, write in ipairs(writes) do
    if write.what == 'append' or write.what == 'extend' then
      permit('XADD', write.key, '*', 'data', '')
      permit('XDEL', write.key, '0-0')
      permit('XLEN', write.key)
      permit('DEL', write.key)
      if write.what == 'append' then
        permit('PEXPIRE', write.key, '1000')
      end
      if write.what == 'append' and write.ttl == '' then
        permit('PERSIST', write.key)
      end
    elseif write.last then
      permit('DEL', write.key)
      permit('SET', write.mark, '')
    elseif write.due then
      permit('SET', write.key, '')
    elseif write.what == 'delete' then
      permit('DEL', write.key)
    end
  end
  for _, write in ipairs(trimmed) do
    if write.key ~= last.key then
      permit('XTRIM', write.key, 'MAXLEN', '1')
    end
  end

  -- Append: before Set, because a put may store the position of an append. First to the logs that must exist: NOMKSTREAM
  -- creates none, and if one is missing, the batch is refused. A stream that another program has filled up to the last
  -- possible position accepts no record, and a text none at all: then the appends before it are undone. What is trimmed
  -- cannot be undone: so the logs that are trimmed come last, and only the very last append trims at once. After all
  -- appends each log gets its length and its TTL once: the appends to one log have the same.
  local appended, ttls = {}, {}
  for _, write in ipairs(writes) do
    if write.what == 'extend' then
      local position = redis.pcall('XADD', write.key, 'NOMKSTREAM', '*', 'data', write.new)
      if failed(position) then
        undo(appended)
        error(position)
      elseif position then
        known[write.key] = nil
        write.position = position
        appended[#appended + 1] = write
      else
        refusal[#refusal + 1] = write.n
        refusal[#refusal + 1] = false
      end
    end
  end
  if #refusal > 1 then
    undo(appended)
    return refusal
  end
  for _, write in ipairs(trimmed) do
    whole[#whole + 1] = write
  end
  for _, write in ipairs(whole) do
    local position = add(write, write == last)
    if failed(position) then
      undo(appended)
      error(position)
    end
    write.position = position
    appended[#appended + 1] = write
    ttls[write.key] = write.ttl
  end
  for _, write in ipairs(trimmed) do
    if write.key ~= last.key then
      redis.call('XTRIM', write.key, 'MAXLEN', '~', write.extra)
    end
  end
  for key, ttl in pairs(ttls) do
    if ttl == '' then
      redis.call('PERSIST', key)
    else
      redis.call('PEXPIRE', key, ttl)
    end
  end
  local reply, positions = { 1 }, {}
  for _, write in ipairs(writes) do
    if write.position then
      positions[#positions + 1] = write.position
      reply[#reply + 1] = write.position
    end
  end

  -- Set: apply the puts. All expectations hold at this point.
  for _, write in ipairs(writes) do
    if write.due then
      set(write, write.extra == 'position' and positions[tonumber(write.new)] or write.new)
    end
  end

  -- Delete and clear: after the writes that need memory. A batch that only removes also works on a server without free
  -- memory.
  for _, write in ipairs(writes) do
    if write.what == 'delete' then
      redis.call('DEL', write.key)
      known[write.key] = false
    elseif write.last then
      redis.call('DEL', write.key)
      known[write.key] = false
      leave_mark(write)
    end
  end

  -- Publish: last, so that subscribers are notified only of writes that are applied. No client can read before the script
  -- has ended, so a subscriber reads all of them. (For a server that refuses PUBLISH, the client removes this step.)
  for _, write in ipairs(writes) do
    if write.what == 'publish' then
      local heard = redis.pcall('PUBLISH', write.extra, write.new)
      if type(heard) == 'table' and heard.err then
        reply[1] = 3
      end
    end
  end

  -- Reply: every write is applied.
  return reply
end

local FIELDS = 6
local batches, replies, listed, at = {}, {}, 0, 1
while at <= #ARGV do
  local writes, named = {}, 0
  local after = at + 1 + ARGV[at] * FIELDS
  for field = at + 1, after - 1, FIELDS do
    local write = {
      what = ARGV[field], expect = ARGV[field + 1], old = ARGV[field + 2],
      new = ARGV[field + 3], ttl = ARGV[field + 4], extra = ARGV[field + 5],
    }
    if write.what ~= 'publish' then
      named, listed = named + 1, listed + 1
      write.n, write.key = named, KEYS[listed]
    end
    if write.what == 'append' or write.what == 'clear' then
      listed = listed + 1
      write.mark = KEYS[listed]
    end
    writes[#writes + 1] = write
  end
  batches[#batches + 1] = writes
  at = after
end
read_ahead(batches)
for n, writes in ipairs(batches) do
  local ran, reply = pcall(apply, writes)
  if not ran then
    local message = type(reply) == 'table' and reply.err or tostring(reply)
    -- The error of one batch is its own reply, and the others are applied. One that is alone fails with the call, so that
    -- the client's connection sees the error too.
    if #batches == 1 then
      return redis.error_reply(message)
    end
    reply = { 4, message }
  end
  replies[n] = reply
end
return replies
