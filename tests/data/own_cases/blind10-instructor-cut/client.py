client = instructor.from_openai(OpenAI(base_url="http://10.0.0.8:8000/v1", api_key="x"), mode=instructor.Mode.JSON)
res = client.chat.completions.create(model="llama-70b", response_model=Report, max_tokens=256, messages=msgs)
