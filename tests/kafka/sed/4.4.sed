# Since 4.4 some helpers are internal, and an aborted transaction is a generated message.
s/\.common\.utils\.\(AppInfoParser\|BufferSupplier\|ByteBufferOutputStream\|CloseableIterator\);/.common.utils.internals.\1;/
s/org\.apache\.kafka\.storage\.internals\.log\.AbortedTxn;/org.apache.kafka.common.message.AbortedTxn;/
