# the whole contract is about 14,000 words
r = ollama.chat(model="llama3.1:8b", messages=[{"role": "system", "content": RULES}, {"role": "user", "content": contract}])
print(r)
