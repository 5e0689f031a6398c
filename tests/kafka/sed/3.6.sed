# What the sources for 3.9 say otherwise in 3.6: segments and the throttle were Scala, and codecs had no levels yet.
s/\.common\.record\.internal\./.common.record./
s/org\.apache\.kafka\.storage\.internals\.log\.LogSegment;/kafka.log.LogSegment;/
s/org\.apache\.kafka\.storage\.internals\.utils\.Throttler;/kafka.utils.Throttler;/
/import org\.apache\.kafka\.common\.compress\.Compression;/d
s/Compression codec = Compression\.of(\(.*\))\.build();/CompressionType codec = \1;/
s/new BrokerTopicStats(false)/new BrokerTopicStats(java.util.Optional.empty())/
s/appendAsFollower(records, Integer\.MAX_VALUE)/appendAsFollower(records)/
s/new Throttler(Double\.MAX_VALUE, Long\.MAX_VALUE, "judge", "bytes", time)/new Throttler(Double.MAX_VALUE, Long.MAX_VALUE, false, "judge", "bytes", time)/
s/return log\.logSegments();/return scala.jdk.javaapi.CollectionConverters.asJava(log.logSegments());/
